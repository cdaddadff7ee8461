// All weights of a head as a table of coloured cells with numbers.

const NARROWEST = 24;
const WIDEST = 40;

function showMatrix(box, tokens, weight) {
  const [reads, read] = sideWords(choice.site);
  const width = Math.floor((box.clientWidth - 130) / tokens.keys.length);
  const colours = scaleColours();
  const caption = `Weights of ${choice.site.name}.${choice.head}: ${reads} tokens that read in rows, `
    + `${read} tokens that are read in columns`;
  const table = element("table", { className: "matrix", role: "grid" });
  table.append(element("caption", { className: "unseen" }, caption));
  table.style.setProperty("--cell", `${Math.min(Math.max(width, NARROWEST), WIDEST)}px`);
  const corner = element("td", { className: "corner" }, "is read \u2192", element("br"), "reads \u2193");
  const names = tokens.keys.map((token) => element("th", { scope: "col" }, element("span", {}, tokenElement(token))));
  const header = element("tr", {}, corner, ...names);
  table.append(element("thead", {}, header));
  const body = element("tbody");
  tokens.queries.forEach((token, query) => {
    const row = element("tr", {}, element("th", { scope: "row" }, tokenElement(token)));
    tokens.keys.forEach((_, key) => row.append(matrixCell(weight(query, key), colours)));
    body.append(row);
  });
  table.append(body);
  box.replaceChildren(element("div", { className: "scroll" }, table));
  listenToCells(table, body, tokens, weight);
  byId("status").textContent = MATRIX_WORDS;
}

const MATRIX_WORDS = "Point at a cell, or move over the cells with the arrow keys.";

// Cells of weights that are not shown keep their colour; those that are zero are empty.
function matrixCell(value, colours) {
  const colour = colourOf(value, colours);
  const isTold = reaches(value, choice.threshold);
  const cell = element("td", { tabIndex: -1 }, isTold ? places(value, 2) : "");
  // Who cannot see the colour hears the number.
  if (!isTold) cell.setAttribute("aria-label", places(value, 2));
  cell.style.backgroundColor = `rgb(${colour.join(" ")})`;
  cell.style.color = inkOn(colour);
  return cell;
}

function listenToCells(table, body, tokens, weight) {
  const placeOf = (target) => {
    const cell = target.closest("tbody td");
    return cell && { query: cell.parentNode.sectionRowIndex, key: cell.cellIndex - 1 };
  };
  const cellAt = ({ query, key }) => body.rows[query]?.cells[key + 1];
  const look = (place) => {
    for (const one of table.querySelectorAll(".looked-at")) one.classList.remove("looked-at");
    if (place) {
      body.rows[place.query].cells[0].classList.add("looked-at");
      table.tHead.rows[0].cells[place.key + 1].classList.add("looked-at");
    }
    byId("status").textContent = place ? cellWords(place, tokens, weight) : MATRIX_WORDS;
  };
  cellAt({ query: 0, key: 0 }).tabIndex = 0;
  body.addEventListener("pointerover", (event) => look(placeOf(event.target)));
  body.addEventListener("pointerleave", () => look(placeOf(document.activeElement)));
  body.addEventListener("focusin", (event) => look(placeOf(event.target)));
  body.addEventListener("focusout", () => look(null));
  body.addEventListener("keydown", (event) => {
    const step = arrow(event);
    const place = placeOf(event.target);
    if (!step || !place) return;
    event.preventDefault();
    const key = Math.min(Math.max(place.key + step[0], 0), tokens.keys.length - 1);
    const next = cellAt({ query: Math.min(Math.max(place.query + step[1], 0), tokens.queries.length - 1), key });
    cellAt(place).tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
  });
}

function cellWords({ query, key }, tokens, weight) {
  const reads = reader(tokens.queries, query, ` (${query})`);
  return `${reads} reads ${quoted(tokens.keys[key])} (${key}) with ${places(weight(query, key), 4)}`;
}

// The scale with its numbers, which stand where their colours are.
function scaleLegend() {
  const colours = scaleColours();
  const [width, height] = [260, 12];
  const words = "Scale of colours from weight 0 to weight 1";
  const svg = shape("svg", { width: width + 30, height: 34, role: "img", "aria-label": words });
  for (let place = 0; place < width; place += 4) {
    const fill = `rgb(${colourOf(((place + 2) / width) ** 2, colours).join(" ")})`;
    svg.append(shape("rect", { x: 10 + place, y: 2, width: 4.2, height, fill }));
  }
  svg.append(shape("rect", { class: "frame", x: 10, y: 2, width, height }));
  for (const weight of [0, 0.05, 0.2, 0.5, 1]) {
    const x = 10 + width * Math.sqrt(weight);
    svg.append(shape("path", { class: "frame", d: `M${x} ${height + 2}v4` }));
    svg.append(shape("text", { x, y: 30, "text-anchor": "middle" }, String(weight)));
  }
  return svg;
}
