// What is shown, and the address that says so: #pair=0&site=encoder.0.self&head=1

const VIEWS = ["lines", "matrix", "table"];
const USUAL = { view: "lines", threshold: 0.05, token: null };
const choice = { pair: 0, site: content.sites[0], head: null, ...USUAL };

// The choice that an address asks for, or the nearest that there is.
function readAddress() {
  const asked = new URLSearchParams(location.hash.slice(1));
  const threshold = parseFloat(asked.get("threshold") ?? USUAL.threshold);
  const token = /^([qk])(\d+)$/u.exec(asked.get("token") ?? "");
  Object.assign(choice, {
    pair: Number(asked.get("pair") ?? 0),
    site: siteByName.get(asked.get("site")) ?? content.sites[0],
    head: asked.has("head") ? Number(asked.get("head")) : null,
    view: VIEWS.includes(asked.get("view")) ? asked.get("view") : USUAL.view,
    threshold: threshold >= 0 && threshold <= 0.95 ? threshold : USUAL.threshold,
    token: token && { side: token[1], place: Number(token[2]) },
  });
  settle();
}

// Changes part of the choice, and shows it.
function choose(changes) {
  const before = tokensAt(choice.pair, choice.site);
  Object.assign(choice, changes);
  settle();
  const after = tokensAt(choice.pair, choice.site);
  if (before.queries !== after.queries || before.keys !== after.keys) choice.token = null;
  show();
}

// Brings the choice to what the page has: a head that was removed gives way to the first that remains.
function settle() {
  if (!(choice.pair in content.pairs)) choice.pair = 0;
  const numbers = choice.site.heads.map((head) => head.number);
  if (!numbers.includes(choice.head)) choice.head = numbers.length ? numbers[0] : null;
  const { queries, keys } = tokensAt(choice.pair, choice.site);
  if (choice.token && choice.token.place >= { q: queries, k: keys }[choice.token.side].length) choice.token = null;
}

function writeAddress() {
  const parts = [`pair=${choice.pair}`, `site=${choice.site.name}`];
  if (choice.head !== null) parts.push(`head=${choice.head}`);
  if (choice.view !== USUAL.view) parts.push(`view=${choice.view}`);
  if (choice.threshold !== USUAL.threshold) parts.push(`threshold=${choice.threshold}`);
  if (choice.token) parts.push(`token=${choice.token.side}${choice.token.place}`);
  // Going back leads to the page before, not through every head that was looked at.
  history.replaceState(null, "", `#${parts.join("&")}`);
}
