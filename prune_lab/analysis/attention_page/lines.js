// Two columns of tokens with lines between them, as thick as the weights.

const ROW_HEIGHT = 26;
const THICKEST = 10;
// Tokens that are named in a sentence; the lines show all.
const NAMED = 6;

// How a weight is drawn: thickness tells it, and opacity keeps many weak lines behind few strong ones.
const strokeOf = (weight) => ({
  "stroke-width": Math.max(THICKEST * weight, 0.4).toFixed(2),
  "stroke-opacity": (0.3 + 0.6 * weight).toFixed(2),
});

// Weights that a token reads, or that read it: {query, key, weight} of the entries with it.
const touching = (entries, token) =>
  token ? entries.filter((entry) => (token.side === "q" ? entry.query : entry.key) === token.place) : entries;

function showLines(box, tokens, weight) {
  const [reads, read] = sideWords(choice.site);
  const height = ROW_HEIGHT * Math.max(tokens.queries.length, tokens.keys.length);
  const svg = shape("svg", { class: "links", height, role: "img" });
  const lists = { q: tokenList("q", tokens.queries, height), k: tokenList("k", tokens.keys, height) };
  const column = (side, words) => element("div", { className: `side ${side}` }, element("h3", {}, words), lists[side]);
  const middle = element("div", { className: "middle" }, element("h3", { "aria-hidden": "true" }, "\u2192"), svg);
  const columns = [column("q", `${reads}: reads`), middle, column("k", `${read}: is read`)];
  box.replaceChildren(element("div", { className: "lines" }, ...columns));

  const entries = entriesFrom(weight, tokens, choice.threshold);
  const sums = { q: tokens.queries.length, k: tokens.keys.length };
  const draw = (token) => {
    const drawn = touching(entries, token);
    drawLinks(svg, drawn, sums, height);
    svg.classList.toggle("one", token !== null);
    markTokens(lists, drawn, token);
    const words = token ? tokenWords(token, tokens, drawn) : linesWords(entries, weight, tokens);
    byId("status").textContent = words;
    svg.setAttribute("aria-label", words);
  };
  listen(lists, draw);
  draw(choice.token);
  // The paths follow the width of their column.
  const redraw = () => svg.isConnected && drawLinks(svg, touching(entries, lists.shown), sums, height);
  new ResizeObserver(redraw).observe(svg);
}

function tokenList(side, tokens, height) {
  const list = element("ul", { "aria-label": side === "q" ? "Tokens that read" : "Tokens that are read" });
  list.style.height = `${height}px`;
  tokens.forEach((token, place) => {
    const button = element("button", { type: "button", tabIndex: -1, "data-side": side, "data-place": place });
    const number = element("span", { className: "number" }, String(place));
    const text = element("span", { className: "token" }, tokenElement(token));
    button.append(...(side === "q" ? [number, text] : [text, number]));
    list.append(element("li", {}, button));
  });
  const first = choice.token?.side === side ? choice.token.place : 0;
  list.children[first].firstChild.tabIndex = 0;
  return list;
}

function drawLinks(svg, drawn, { q, k }, height) {
  const width = svg.clientWidth;
  const strongestLast = [...drawn].sort((one, other) => one.weight - other.weight);
  svg.replaceChildren(...strongestLast.map(({ query, key, weight }) => {
    const [from, to] = [((query + 0.5) * height) / q, ((key + 0.5) * height) / k];
    const [left, right] = [from.toFixed(1), to.toFixed(1)];
    return shape("path", {
      d: `M0 ${left}C${width * 0.4} ${left} ${width * 0.6} ${right} ${width} ${right}`,
      ...strokeOf(weight),
      "data-query": query,
      "data-key": key,
      "data-weight": weight.toFixed(5),
    });
  }));
}

// The token that is looked at, and the weights at the tokens across from it.
function markTokens(lists, drawn, token) {
  lists.shown = token;
  for (const side of ["q", "k"]) {
    const weights = new Map(drawn.map((entry) => [side === "q" ? entry.query : entry.key, entry.weight]));
    [...lists[side].children].forEach(({ firstChild: button }, place) => {
      const isToken = token?.side === side && token.place === place;
      const isAcross = token !== null && token.side !== side;
      button.classList.toggle("looked-at", isToken);
      button.classList.toggle("apart", token !== null && !isToken && !(isAcross && weights.has(place)));
      // Where there is a weight to tell, it stands in the place of the token's number.
      const isTold = isAcross && weights.has(place);
      button.querySelector(".number").textContent = isTold ? places(weights.get(place), 2) : String(place);
      button.querySelector(".number").classList.toggle("weight", isTold);
      const isKept = choice.token?.side === side && choice.token.place === place;
      button.setAttribute("aria-pressed", isKept);
    });
  }
}

function listen(lists, draw) {
  const tokenOf = (target) => {
    const button = target instanceof Element && target.closest("button[data-side]");
    return button ? { side: button.dataset.side, place: Number(button.dataset.place) } : null;
  };
  for (const side of ["q", "k"]) {
    const list = lists[side];
    list.addEventListener("pointerover", (event) => draw(tokenOf(event.target) ?? choice.token));
    list.addEventListener("pointerleave", () => draw(tokenOf(list.ownerDocument.activeElement) ?? choice.token));
    list.addEventListener("focusin", (event) => draw(tokenOf(event.target)));
    list.addEventListener("focusout", () => draw(choice.token));
    list.addEventListener("click", (event) => {
      const token = tokenOf(event.target);
      if (!token) return;
      const isKept = choice.token?.side === token.side && choice.token.place === token.place;
      choice.token = isKept ? null : token;
      writeAddress();
      draw(token);
    });
    list.addEventListener("keydown", (event) => {
      const token = tokenOf(event.target);
      const step = arrow(event);
      if (event.key === "Escape") {
        choice.token = null;
        writeAddress();
        draw(null);
      } else if (token && step) {
        event.preventDefault();
        moveToToken(lists, token, step);
      }
    });
  }
}

// Up and down within a column; left and right to the token at the same height of the other column.
function moveToToken(lists, { side, place }, [columns, rows]) {
  const other = { "-1": "q", 0: side, 1: "k" }[columns];
  const [from, to] = [lists[side].children.length, lists[other].children.length];
  const wanted = other === side ? place + rows : Math.floor(((place + 0.5) * to) / from);
  const item = lists[other].children[Math.min(Math.max(wanted, 0), to - 1)];
  for (const one of lists[other].children) one.firstChild.tabIndex = one === item ? 0 : -1;
  item.firstChild.focus();
}

function linesWords(entries, weight, tokens) {
  const all = entriesFrom(weight, tokens, 0);
  const sum = (some) => some.reduce((total, entry) => total + entry.weight, 0);
  const share = all.length ? Math.round((100 * sum(entries)) / sum(all)) : 0;
  return `${entries.length} of ${plural(all.length, "weight")} shown, ${share} % of all that is read. `
    + "Choose a token for its own.";
}

// A token that reads; in the decoder with the one that comes next, which it reads for.
function reader(queries, place, number = "") {
  const next = choice.site.kind !== "encoder.self" && place + 1 < queries.length;
  return `${quoted(queries[place])}${number}${next ? `, before ${quoted(queries[place + 1])},` : ""}`;
}

// What a token reads, or what reads it, strongest first.
function tokenWords({ side, place }, { queries, keys }, drawn) {
  const token = side === "q" ? reader(queries, place) : quoted(keys[place]);
  const sorted = [...drawn].sort((one, other) => other.weight - one.weight);
  const across = sorted.map((entry) => {
    const other = side === "q" ? keys[entry.key] : queries[entry.query];
    return `${quoted(other)} ${places(entry.weight, 2)}`;
  });
  if (!across.length) {
    const least = `with ${places(choice.threshold, 2)} or more`;
    return side === "q" ? `${token} reads nothing ${least}` : `nothing reads ${token} ${least}`;
  }
  const more = across.length > NAMED ? `, and ${across.length - NAMED} more` : "";
  return `${token} ${side === "q" ? "reads" : "is read by"} ${across.slice(0, NAMED).join(", ")}${more}`;
}
