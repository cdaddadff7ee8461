// Choosing a sentence pair and a site.

const KINDS = [["encoder.self", "encoder self"], ["decoder.self", "decoder self"], ["decoder.cross", "decoder cross"]];

function makePairs() {
  const select = byId("pair");
  content.pairs.forEach((pair, index) => {
    select.append(element("option", { value: index }, `${index + 1}. \u2068${visible(sourceText(pair))}\u2069`));
  });
  select.addEventListener("change", () => choose({ pair: Number(select.value) }));
  byId("earlier").addEventListener("click", () => choose({ pair: Math.max(choice.pair - 1, 0) }));
  byId("later").addEventListener("click", () => choose({ pair: Math.min(choice.pair + 1, content.pairs.length - 1) }));
}

function showPair() {
  const pair = content.pairs[choice.pair];
  byId("pair").value = choice.pair;
  byId("source").textContent = visible(sourceText(pair));
  byId("target").textContent = visible(targetText(pair));
  // A button that has the focus keeps it at the last pair, so it is not switched off but says that it does nothing.
  byId("earlier").setAttribute("aria-disabled", choice.pair === 0);
  byId("later").setAttribute("aria-disabled", choice.pair === content.pairs.length - 1);
}

// A map of the model: a row for each kind of site, a column for each layer.
function makeSites() {
  const numLayers = 1 + Math.max(...content.sites.map((site) => site.layer));
  const head = element("tr", {}, element("th", {}, "layer"));
  for (let layer = 0; layer < numLayers; layer += 1) head.append(element("th", { scope: "col" }, String(layer)));
  const rows = KINDS.filter(([kind]) => content.sites.some((site) => site.kind === kind)).map(([kind, words]) => {
    const row = element("tr", {}, element("th", { scope: "row" }, words));
    for (let layer = 0; layer < numLayers; layer += 1) {
      const site = content.sites.find((one) => one.kind === kind && one.layer === layer);
      row.append(element("td", {}, ...(site ? [siteButton(site)] : [])));
    }
    return row;
  });
  byId("sites").append(element("table", { role: "presentation" }, head, ...rows));
  byId("sites").addEventListener("keydown", moveToSite);
}

function siteButton(site) {
  const input = element("input", { type: "radio", name: "site", value: site.name });
  input.setAttribute("aria-label", `${site.name}, ${site.heads.length} of ${plural(site.total, "head")} remain`);
  input.addEventListener("change", () => choose({ site }));
  const face = element("span", { "aria-hidden": "true", title: site.name }, String(site.heads.length));
  face.classList.toggle("none", !site.heads.length);
  return element("label", {}, input, face);
}

// Arrow keys go by layer and kind, past places where there is no site.
function moveToSite(event) {
  const step = arrow(event);
  if (!step) return;
  event.preventDefault();
  const rows = KINDS.map(([kind]) => kind);
  let { kind, layer } = choice.site;
  for (;;) {
    layer += step[0];
    kind = rows[rows.indexOf(kind) + step[1]];
    const site = content.sites.find((one) => one.kind === kind && one.layer === layer);
    if (site) {
      choose({ site });
      byId("sites").querySelector("input:checked").focus();
      return;
    }
    if (!kind || layer < 0 || content.sites.every((one) => one.layer < layer)) return;
  }
}

function showSite() {
  for (const input of byId("sites").querySelectorAll("input")) input.checked = input.value === choice.site.name;
}
