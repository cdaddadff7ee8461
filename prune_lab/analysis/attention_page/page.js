// The page as a whole: the view of the head that is chosen, and what begins it all.

function showDetail() {
  const { site, head } = choice;
  const known = site.heads.find((one) => one.number === head);
  const name = known ? `${site.name}.${head}` : site.name;
  byId("head").textContent = name;
  document.title = `${name} \u2013 ${content.title}`;
  byId("facts").replaceChildren(...(known ? [...(hasGates ? [gateElement(known)] : []), ...roleElements(known)] : []));
  for (const input of byId("views").querySelectorAll("input")) input.checked = input.value === choice.view;
  byId("threshold").value = choice.threshold;
  byId("least").textContent = places(choice.threshold, 2);
  showView(known);
}

function showView(known) {
  const box = byId("view");
  byId("legend").replaceChildren();
  byId("detail").classList.toggle("empty", !known);
  if (!known) {
    byId("status").textContent = "";
    const words = `No head of this site is left (of ${choice.site.total}). `
      + "It reads nothing, and adds its output bias alone, if it has one.";
    box.replaceChildren(element("p", { className: "nothing" }, words));
    return;
  }
  const tokens = tokensAt(choice.pair, choice.site);
  const weight = weightsOf(choice.pair, choice.site, choice.head);
  ({ lines: showLines, matrix: showMatrix, table: showTable })[choice.view](box, tokens, weight);
  if (choice.view === "lines") byId("legend").append(thicknessLegend());
  if (choice.view === "matrix") byId("legend").append(scaleLegend());
}

function thicknessLegend() {
  const words = "Thickness of lines for weights 0.1, 0.25, 0.5 and 1";
  const svg = shape("svg", { class: "links", width: 350, height: 34, role: "img", "aria-label": words });
  svg.append(shape("text", { x: 0, y: 12 }, "weight"));
  [0.1, 0.25, 0.5, 1].forEach((weight, place) => {
    const x = 60 + 72 * place;
    svg.append(shape("path", { d: `M${x} 8h54`, ...strokeOf(weight) }));
    svg.append(shape("text", { x: x + 27, y: 30, "text-anchor": "middle" }, String(weight)));
  });
  return svg;
}

function show() {
  showPair();
  showSite();
  showHeads();
  showDetail();
  writeAddress();
}

function begin() {
  const live = content.sites.reduce((sum, site) => sum + site.heads.length, 0);
  const total = content.sites.reduce((sum, site) => sum + site.total, 0);
  const counts = [plural(content.pairs.length, "sentence pair"), plural(content.sites.length, "site")];
  byId("summary").textContent = `${counts.join(", ")}, ${live} of ${plural(total, "head")}; `
    + "every map is one head, nothing is averaged";
  byId("precision").textContent = content.precision;
  makePairs();
  makeSites();
  makeHeads();
  byId("views").addEventListener("change", (event) => choose({ view: event.target.value }));
  byId("threshold").addEventListener("input", (event) => choose({ threshold: Number(event.target.value) }));
  addEventListener("hashchange", () => {
    readAddress();
    show();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    shownHeads = null;
    show();
  });
  byId("viewer").hidden = false;
  readAddress();
  show();
}

begin();
