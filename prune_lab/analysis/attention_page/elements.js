// Elements, tokens as text and as elements, and the colour of a weight.

const byId = (id) => document.getElementById(id);

// An element with properties (`data-` and `aria-` ones and `role` are attributes) and children; strings are text.
function element(name, properties = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) {
    if (key.includes("-") || key === "role" || key === "scope") made.setAttribute(key, value);
    else made[key] = value;
  }
  made.append(...children);
  return made;
}

// An SVG element with attributes.
function shape(name, attributes, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

// A token with what cannot be seen made visible: nothing, spaces, control characters, a mark without its letter.
function visible(token) {
  if (token === "") return "(empty)";
  const shown = token
    .replace(/^\s+$/u, (spaces) => "\u2423".repeat(spaces.length))
    .replace(/[\u0000-\u001f]/gu, (control) => String.fromCharCode(0x2400 + control.charCodeAt(0)))
    .replace(/[\u007f-\u009f\u2028\u2029\ufeff]/gu, "\ufffd");
  return /^\p{M}/u.test(shown) ? `\u25cc${shown}` : shown;
}

// A token in an element that keeps its direction to itself; the mark at the start of a word is quiet.
function tokenElement(token) {
  const text = visible(token);
  const isStart = text.length > 1 && text.startsWith("\u2581");
  const parts = isStart ? [element("span", { className: "start" }, "\u2581"), text.slice(1)] : [text];
  return element("bdi", { title: text }, ...parts);
}

// A token within a sentence of plain text, its direction kept to itself.
const quoted = (token) => `\u201c\u2068${visible(token)}\u2069\u201d`;

// The sentence that tokens are pieces of, without the mark at one of its ends.
function sentence(tokens) {
  const isPieces = tokens.some((token) => token.startsWith("\u2581"));
  return isPieces ? tokens.join("").replaceAll("\u2581", " ").trim() : tokens.join(" ");
}
const sourceText = (pair) => sentence(pair.source.slice(0, -1));
const targetText = (pair) => sentence(pair.target.slice(1));

const places = (value, number) => value.toFixed(number);
const plural = (number, noun) => `${number} ${noun}${number === 1 ? "" : "s"}`;

// The scale from weight 0 to 1 as 256 colours [red, green, blue], between the stops that the style has for the theme.
function scaleColours() {
  const words = getComputedStyle(document.documentElement).getPropertyValue("--scale").trim().split(/\s+/u);
  const stops = words.map((stop) => [1, 3, 5].map((start) => parseInt(stop.slice(start, start + 2), 16)));
  return Array.from({ length: 256 }, (_, index) => {
    const place = (index / 255) * (stops.length - 1);
    const low = Math.min(Math.floor(place), stops.length - 2);
    return stops[low].map((from, channel) => Math.round(from + (place - low) * (stops[low + 1][channel] - from)));
  });
}

// The colour of a weight. The scale goes by the square root, so that small weights differ from none.
const colourOf = (weight, colours) => colours[Math.round(255 * Math.sqrt(Math.min(weight, 1)))];

// Black or white, whichever is read better on a colour.
function inkOn(colour) {
  const [red, green, blue] = colour.map((channel) => {
    const share = channel / 255;
    return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.179 ? "#000000" : "#ffffff";
}

// What moving by an arrow key means: [columns, rows], or null for other keys.
function arrow(event) {
  if (event.altKey || event.ctrlKey || event.metaKey || event.shiftKey) return null;
  return { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key] ?? null;
}
