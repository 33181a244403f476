// The same matrix as two rows of words with lines between them: the stronger a line, the greater the weight.

const WORD_SIZE = 15;
const WORD_GAP = 14;
const LEAST_LINK = 0.02; // fainter lines cannot be seen, and would be most of them
const LINK_HEIGHT = 190; // between words that stand across
const LINK_WIDTHS = [90, 280]; // between words that stand down, by the room there is
const PITCH = 23; // of words that stand down

function drawLinks(place, tensor, matrix, where) {
  const width = place.clientWidth;
  const across = (units) => units.reduce((sum, unit) => sum + widthOf(unit.text, WORD_SIZE) + WORD_GAP, 0);
  const fits = Math.max(across(tensor.columns), across(tensor.rows)) <= width;
  const { svg, tops, bottoms } = fits ? layAcross(tensor, width, across) : layDown(tensor, width);
  svg.setAttribute("class", "links");
  svg.setAttribute("aria-label", `${where}. Arrow keys move between words.`);
  svg.setAttribute("role", "group");

  const links = [];
  matrix.forEach((weight, i) => {
    if (weight < LEAST_LINK) return;
    const row = Math.floor(i / tensor.columns.length);
    const column = i % tensor.columns.length;
    const path = shape("path", {
      d: curve(tops[column].end, bottoms[row].end, fits),
      "stroke-width": 1.25 + 2.5 * weight,
      "stroke-opacity": clamp(0, weight, 1).toFixed(3),
    });
    links.push({ row, column, weight, path });
  });
  links.sort((a, b) => a.weight - b.weight);
  svg.prepend(...links.map((link) => link.path));
  place.replaceChildren(svg);
  // The tooltip stands clear of the lines.
  const awayFrom = fits ? { column: "above", row: "below" } : { column: "left", row: "right" };
  watchLinks(svg, { tensor, links, tops, bottoms, awayFrom });
}

// Columns above, rows below; each line of words in the middle.
function layAcross({ rows, columns, axes }, width, across) {
  const top = 58;
  const bottom = top + LINK_HEIGHT;
  const used = Math.max(across(columns), across(rows));
  const svg = shape("svg", { width, height: bottom + 66 });
  const line = (units, y, away) => {
    let x = (used - across(units)) / 2 + WORD_GAP / 2;
    return units.map((unit) => {
      const half = widthOf(unit.text, WORD_SIZE) / 2;
      const made = word(svg, unit, unit.text, { x: x + half, y, "text-anchor": "middle" });
      made.end = [x + half, y - away * 14];
      made.shareAt = { x: x + half, y: y + away * 17, "text-anchor": "middle" };
      x += 2 * half + WORD_GAP;
      return made;
    });
  };
  const laid = { svg, tops: line(columns, top, -1), bottoms: line(rows, bottom, 1) };
  svg.append(shape("text", { class: "soft", x: 0, y: 14, "font-size": 12 }, axes.columnName));
  svg.append(shape("text", { class: "soft", x: 0, y: bottom + 54, "font-size": 12 }, axes.rowName));
  return laid;
}

// Columns at the left, rows at the right, for sentences too long to stand across.
function layDown({ rows, columns, axes }, width) {
  const between = clamp(LINK_WIDTHS[0], width * 0.4, LINK_WIDTHS[1]);
  const most = clamp(40, (width - between - 100) / 2, 260);
  const left = Math.min(Math.max(...columns.map((unit) => widthOf(unit.text, WORD_SIZE))), most) + 45;
  const right = left + between;
  const longest = Math.max(rows.length, columns.length);
  const height = 34 + longest * PITCH;
  const svg = shape("svg", { width: Math.min(width, right + most + 50), height });
  const line = (units, x, away, anchor) =>
    units.map((unit, i) => {
      const y = 34 + ((i + 0.5) * longest * PITCH) / units.length;
      const made = word(svg, unit, fit(unit.text, WORD_SIZE, most), { x, y, "text-anchor": anchor });
      made.end = [x - away * 8, y];
      made.shareAt = { x: x + away * (Math.min(widthOf(unit.text, WORD_SIZE), most) + 8), y, "text-anchor": anchor };
      return made;
    });
  const laid = { svg, tops: line(columns, left, -1, "end"), bottoms: line(rows, right, 1, "start") };
  svg.append(shape("text", { class: "soft", x: left, y: 14, "font-size": 12, "text-anchor": "end" }, axes.columnName));
  svg.append(shape("text", { class: "soft", x: right, y: 14, "font-size": 12 }, axes.rowName));
  return laid;
}

function word(svg, unit, shown, attributes) {
  const group = shape("g", { class: "word", tabindex: -1, role: "button", "aria-label": unit.text });
  const text = shape("text", { "font-size": WORD_SIZE, "dominant-baseline": "central", ...attributes }, shown);
  if (unit.special) text.classList.add("special");
  group.append(text);
  svg.append(group);
  return { group, text };
}

function curve([x1, y1], [x2, y2], fits) {
  const [mx, my] = [(x1 + x2) / 2, (y1 + y2) / 2];
  return fits ? `M${x1} ${y1}C${x1} ${my} ${x2} ${my} ${x2} ${y2}` : `M${x1} ${y1}C${mx} ${y1} ${mx} ${y2} ${x2} ${y2}`;
}

// A word that is pointed at or focused shows its own lines alone, with their shares; a line shows its weight.
function watchLinks(svg, { tensor, links, tops, bottoms, awayFrom }) {
  const sides = { column: tops, row: bottoms };
  const units = { column: tensor.columns, row: tensor.rows };

  function clear() {
    links.forEach(({ path }) => path.classList.remove("off"));
    svg.querySelectorAll(".share").forEach((share) => share.remove());
    svg.querySelectorAll(".on").forEach((text) => text.classList.remove("on"));
    hideTooltip();
  }
  function show(side, index) {
    clear();
    const other = side === "row" ? "column" : "row";
    const own = links.filter((link) => link[side] === index);
    links.forEach((link) => link.path.classList.toggle("off", link[side] !== index));
    sides[side][index].text.classList.add("on");
    for (const link of own) {
      const partner = sides[other][link[other]];
      partner.text.classList.add("on");
      const share = { class: "share", "dominant-baseline": "central", ...partner.shareAt };
      svg.append(shape("text", share, Math.round(100 * link.weight)));
    }
    const strongest = own.slice(-5).reverse();
    const lines = strongest.map((link) => [`${percent(link.weight)}  ${units[other][link[other]].text}`]);
    const verb = side === "row" ? "looks at" : "is looked at by";
    const heading = [[units[side][index].text, "strong"], [verb, "soft"]];
    showTooltip([...heading, ...lines], sides[side][index].text, awayFrom[side]);
  }

  for (const side of ["column", "row"]) {
    sides[side].forEach(({ group }, index) => {
      group.addEventListener("pointerenter", () => show(side, index));
      group.addEventListener("pointerleave", clear);
      group.addEventListener("focus", () => show(side, index));
      group.addEventListener("blur", clear);
      group.addEventListener("keydown", (event) => {
        if (event.key === "Escape") return clear();
        const step = { ArrowLeft: -1, ArrowUp: -1, ArrowRight: 1, ArrowDown: 1, Home: -Infinity, End: Infinity }[event.key];
        if (step === undefined) return;
        event.preventDefault();
        move(group, sides[side][clamp(0, index + step, sides[side].length - 1)].group);
      });
    });
    sides[side][0]?.group.setAttribute("tabindex", 0);
  }
  for (const { row, column, weight, path } of links) {
    path.addEventListener("pointermove", (event) => {
      const { clientX: x, clientY: y } = event;
      const words = `${units.row[row].text} → ${units.column[column].text}`;
      const pointer = new DOMRect(x, y, 0, 0);
      showTooltip([[percent(weight), "strong"], [words]], { getBoundingClientRect: () => pointer });
    });
    path.addEventListener("pointerleave", hideTooltip);
  }
}

// One stop of the Tab key for each group: the focus moves within it by arrows.
function move(from, to) {
  from.setAttribute("tabindex", -1);
  to.setAttribute("tabindex", 0);
  to.focus();
}
