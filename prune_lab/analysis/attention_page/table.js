// What every token reads, as a table of words and numbers.

function showTable(box, tokens, weight) {
  const caption = `What each token reads in ${choice.site.name}.${choice.head}, strongest first`;
  const heads = ["position", "token", `reads, with ${places(choice.threshold, 2)} or more`, "all others"];
  const header = element("tr", {}, ...heads.map((text) => element("th", { scope: "col" }, text)));
  const rows = tokens.queries.map((token, query) => {
    const found = [];
    let rest = 0;
    tokens.keys.forEach((_, key) => {
      const value = weight(query, key);
      if (reaches(value, choice.threshold)) found.push({ key, value });
      else rest += value;
    });
    found.sort((one, other) => other.value - one.value);
    const read = found.map(({ key, value }) =>
      element("li", {}, tokenElement(tokens.keys[key]), ` ${places(value, 2)}`));
    return element(
      "tr",
      {},
      element("td", {}, String(query)),
      element("th", { scope: "row" }, tokenElement(token)),
      element("td", {}, read.length ? element("ol", {}, ...read) : element("span", { className: "quiet" }, "nothing")),
      element("td", {}, places(rest, 2)),
    );
  });
  const table = element("table", { className: "reads" }, element("caption", {}, caption));
  table.append(element("thead", {}, header), element("tbody", {}, ...rows));
  const scroll = { className: "scroll", tabIndex: 0, role: "region", "aria-label": caption };
  box.replaceChildren(element("div", scroll, table));
  byId("status").textContent = "";
}
