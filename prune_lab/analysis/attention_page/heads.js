// All heads of a site, each with a small map of its own, its gate and its roles.

const hasGates = content.sites.some((site) => site.heads.some((head) => head.gate !== null));
const hasRoles = content.sites.some((site) => site.heads.some((head) => head.roles.length));
let shownHeads = null;

function gateWords(head) {
  if (head.gate === null) return hasGates ? "no gate" : "";
  return `gate ${places(head.gate, 2)}${head.gate === 0 ? ", closed" : ""}`;
}

// The gate as a number and a bar; nothing where no head of the page has one.
function gateElement(head) {
  const made = element("span", { className: "gate" }, gateWords(head));
  if (head.gate !== null) {
    const part = { class: "part", width: `${100 * Math.min(Math.max(head.gate, 0), 1)}%`, height: 5, rx: 2.5 };
    const rest = { class: "rest", width: "100%", height: 5, rx: 2.5 };
    made.append(shape("svg", { height: 5, "aria-hidden": "true" }, shape("rect", rest), shape("rect", part)));
  }
  return made;
}

function roleElements(head) {
  if (!head.roles.length) return hasRoles ? [element("span", { className: "quiet" }, "no role")] : [];
  return head.roles.map((role) => element("span", { className: "role" }, element("bdi", {}, role)));
}

// One pixel for each weight; the style makes it larger without smoothing.
function smallMap(site, number, tokens) {
  const colours = scaleColours();
  const weight = weightsOf(choice.pair, site, number);
  const canvas = element("canvas", { width: tokens.keys.length, height: tokens.queries.length, "aria-hidden": "true" });
  const image = new ImageData(canvas.width, canvas.height);
  for (let place = 0; place < canvas.width * canvas.height; place += 1) {
    const value = weight(Math.floor(place / canvas.width), place % canvas.width);
    image.data.set(colourOf(value, colours), 4 * place);
    image.data[4 * place + 3] = 255;
  }
  canvas.getContext("2d").putImageData(image, 0, 0);
  // Sentences of very unlike lengths are squeezed, so that a map is never a strip.
  canvas.style.aspectRatio = Math.min(Math.max(canvas.width / canvas.height, 0.6), 1.7);
  return canvas;
}

function headTile(site, head, tokens) {
  const input = element("input", { type: "radio", name: "head", value: head.number });
  input.setAttribute("aria-label", [`head ${head.number}`, gateWords(head), ...head.roles].filter(Boolean).join(", "));
  input.addEventListener("change", () => choose({ head: head.number }));
  const words = element("span", { className: "words", "aria-hidden": "true" }, element("b", {}, `head ${head.number}`));
  if (hasGates) words.append(gateElement(head));
  words.append(...roleElements(head));
  const tile = element("label", { className: "tile" }, input, smallMap(site, head.number, tokens), words);
  tile.classList.toggle("closed", head.gate === 0);
  return tile;
}

function removedTile(number) {
  const words = element("span", { className: "words" }, element("b", {}, `head ${number}`), "removed");
  return element("div", { className: "tile removed" }, element("div", { className: "gap" }), words);
}

function makeHeads() {
  const box = byId("heads");
  box.addEventListener("keydown", (event) => {
    if (event.key === "Enter") openDetail(event);
  });
  box.addEventListener("click", (event) => {
    // Keys click on the radio button itself; who uses them stays where they are until Enter.
    const isPointer = !event.target.matches("input") && event.target.closest("label");
    const detail = byId("detail");
    if (isPointer && detail.getBoundingClientRect().top > 0.6 * innerHeight) detail.scrollIntoView({ block: "start" });
  });
}

function openDetail(event) {
  event.preventDefault();
  byId("detail").focus();
}

function showHeads() {
  const { site } = choice;
  const key = `${choice.pair} ${site.name}`;
  if (shownHeads !== key) {
    shownHeads = key;
    const tokens = tokensAt(choice.pair, site);
    const removed = [];
    const tiles = Array.from({ length: site.total }, (_, number) => {
      const head = site.heads.find((one) => one.number === number);
      if (!head) removed.push(number);
      return head ? headTile(site, head, tokens) : removedTile(number);
    });
    byId("heads").replaceChildren(...tiles);
    byId("site").textContent = site.name;
    byId("remaining").textContent = `${site.heads.length} of ${plural(site.total, "head")} remain`
      + (removed.length ? `; removed: ${removed.join(", ")}` : "");
    byId("axes").textContent = site.heads.length ? axisWords(site) : "";
  }
  for (const input of byId("heads").querySelectorAll("input")) input.checked = Number(input.value) === choice.head;
}

function axisWords(site) {
  const [rows, columns] = sideWords(site);
  const purpose = site.kind === "encoder.self" ? "" : ", each to predict the next";
  return `Rows: ${rows} tokens that read${purpose}. Columns: ${columns} tokens that are read.`;
}

// Which sentence reads at a site, and which is read.
function sideWords(site) {
  return [site.kind === "encoder.self" ? "source" : "target", site.kind === "decoder.self" ? "target" : "source"];
}
