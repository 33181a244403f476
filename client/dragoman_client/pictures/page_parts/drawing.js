// What every picture is made with: elements, colours, words for numbers, the tooltip.

function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

function shape(name, attributes = {}, text) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

const clamp = (low, value, high) => Math.min(Math.max(value, low), high);
const percent = (weight) => `${(100 * weight).toFixed(1)} %`;

const systemIsDark = matchMedia("(prefers-color-scheme: dark)");

function isDark() {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : systemIsDark.matches;
}

// Brightness goes with the square root, so that small weights can be seen; the scale says so by its ticks.
const levelOf = (weight) => Math.sqrt(clamp(0, weight, 1));

function colorAt(level) {
  const ramp = DATA.ramps[isDark() ? "dark" : "light"];
  const place = clamp(0, level, 1) * (ramp.length - 1);
  const low = Math.min(Math.floor(place), ramp.length - 2);
  return ramp[low].map((value, i) => Math.round(value + (ramp[low + 1][i] - value) * (place - low)));
}

const css = (color) => `rgb(${color.join(" ")})`;
const inkOn = ([red, green, blue]) => (0.3 * red + 0.59 * green + 0.11 * blue > 135 ? "#16181f" : "#f4f4f0");

const ruler = document.createElement("canvas").getContext("2d");

function widthOf(text, size) {
  ruler.font = `${size}px ${getComputedStyle(document.body).fontFamily}`;
  return ruler.measureText(text).width;
}

// The longest beginning of a text that fits, with an ellipsis where it was cut.
function fit(text, size, width) {
  if (widthOf(text, size) <= width) return text;
  const letters = Array.from(text);
  while (letters.length > 1 && widthOf(letters.join("") + "…", size) > width) letters.pop();
  return letters.join("") + "…";
}

const tooltip = document.getElementById("tooltip");
let anchor = null; // what the tooltip stands beside: anything with a rectangle in the window, and at which side of it

// Shows lines, [text, class] each, above, below, left or right of something.
function showTooltip(lines, target, side = "above") {
  tooltip.replaceChildren(
    ...lines.map(([text, kind]) => element(kind === "strong" ? "b" : "div", { class: kind ?? "" }, text)),
  );
  tooltip.hidden = false;
  anchor = { target, side };
  placeTooltip();
}

function hideTooltip() {
  tooltip.hidden = true;
  anchor = null;
}

function placeTooltip() {
  if (anchor === null) return;
  const box = anchor.target.getBoundingClientRect();
  const { width, height } = tooltip.getBoundingClientRect();
  const [middle, centre] = [(box.left + box.right - width) / 2, (box.top + box.bottom - height) / 2];
  const [above, below] = [box.top - height - 8, box.bottom + 8];
  const [left, top] = {
    above: [middle, above >= 0 ? above : below],
    below: [middle, below + height <= innerHeight ? below : above],
    left: [box.left - width - 12, centre],
    right: [box.right + 12, centre],
  }[anchor.side];
  tooltip.style.left = `${clamp(4, left, innerWidth - width - 4)}px`;
  tooltip.style.top = `${clamp(4, top, innerHeight - height - 4)}px`;
}

document.addEventListener("scroll", placeTooltip, { capture: true, passive: true });
