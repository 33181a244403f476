// A matrix as coloured cells: columns are looked at, rows look.

const MIN_CELL = 13;
const MAX_CELL = 52;
const MAX_LABEL = 170;
const NAME_SIZE = 11; // of the axes
const LABEL_ROOM = 70; // pixels that a tooltip takes above a cell

function drawHeatmap(place, tensor, matrix, where) {
  const { rows, columns } = tensor;
  const names = [`${tensor.axes.columnName} →`, `${tensor.axes.rowName} ↓`];
  const rowLabels = Math.min(Math.max(...rows.map((unit) => widthOf(unit.text, 13))), MAX_LABEL);
  const rowWidth = Math.max(rowLabels, ...names.map((name) => widthOf(name, NAME_SIZE))) + 10;
  const size = clamp(MIN_CELL, Math.floor((place.clientWidth - rowWidth - 60) / columns.length), MAX_CELL);
  const font = size < 17 ? 10.5 : 13;
  const width = columns.length * size;
  const height = rows.length * size;
  const head = drawColumnLabels(columns, size, font);
  const side = shape("svg", { class: "rows", width: rowWidth, height });
  rows.forEach((unit, row) =>
    side.append(label(unit, font, MAX_LABEL, { x: rowWidth - 8, y: (row + 0.5) * size, "text-anchor": "end" })),
  );
  const cells = drawCells(tensor, matrix, size);
  cells.setAttribute("width", head.getAttribute("width"));
  const corner = shape("svg", { class: "corner", width: rowWidth, height: head.getAttribute("height") });
  names.forEach((name, i) => {
    const y = head.getAttribute("height") - 23 + 14 * i;
    corner.append(shape("text", { class: "soft", x: rowWidth - 8, y, "text-anchor": "end", "font-size": NAME_SIZE }, name));
  });
  const map = element(
    "div",
    { class: "map", tabindex: 0, role: "application", "aria-roledescription": "heatmap", "aria-label": `${where}. Arrow keys move.` },
    corner, head, side, cells,
  );
  place.replaceChildren(map);
  watchCells(map, { tensor, matrix, size, width, height, cells, head, side, corner });
}

function label(unit, font, width, attributes) {
  const text = shape("text", { "font-size": font, "dominant-baseline": "central", ...attributes }, fit(unit.text, font, width));
  if (unit.special) text.classList.add("special");
  return text;
}

// Across where they fit, slanted where there is room to read them so, upright otherwise.
function drawColumnLabels(units, size, font) {
  const widest = Math.min(Math.max(...units.map((unit) => widthOf(unit.text, font))), MAX_LABEL);
  const angle = widest <= size - 4 ? 0 : size >= 22 ? -50 : -90;
  const radians = (-angle * Math.PI) / 180;
  const height = Math.max(36, Math.ceil(widest * Math.sin(radians) + font * Math.cos(radians)) + 10);
  const overhang = angle === -50 ? Math.ceil(widest * Math.cos(radians)) : 0;
  const svg = shape("svg", { class: "columns", width: units.length * size + overhang, height });
  units.forEach((unit, column) => {
    const x = (column + 0.5) * size;
    const y = height - (angle === 0 ? font / 2 + 5 : 6);
    const turned = { x, y, "text-anchor": angle === 0 ? "middle" : "start", transform: `rotate(${angle} ${x} ${y})` };
    svg.append(label(unit, font, MAX_LABEL, turned));
  });
  return svg;
}

function drawCells({ rows, columns }, matrix, size) {
  const svg = shape("svg", { class: "cells", height: rows.length * size });
  const gap = size > 20 ? 1 : size > 15 ? 0.5 : 0;
  svg.append(
    shape("rect", { width: columns.length * size - gap, height: rows.length * size - gap, fill: css(colorAt(0)) }),
  );
  matrix.forEach((weight, i) => {
    if (weight < 0.0005) return; // the ground's colour
    const x = (i % columns.length) * size;
    const y = Math.floor(i / columns.length) * size;
    const color = colorAt(levelOf(weight));
    svg.append(shape("rect", { x, y, width: size - gap, height: size - gap, fill: css(color) }));
    if (size >= 30 && weight >= 0.01) {
      const middle = { x: x + size / 2, y: y + size / 2, "font-size": 11, "dominant-baseline": "central" };
      const text = shape("text", middle, Math.round(100 * weight));
      text.style.fill = inkOn(color);
      svg.append(text);
    }
  });
  return svg;
}

// Follows the pointer and the arrow keys with a frame, the labels and the tooltip.
function watchCells(map, { tensor, matrix, size, width, height, cells, head, side, corner }) {
  const { rows, columns } = tensor;
  const frame = shape("rect", { class: "cursor", width: size, height: size, visibility: "hidden" });
  cells.append(frame);
  let cursor = null;

  function mark(on) {
    if (cursor === null) return;
    side.children[cursor.row].classList.toggle("on", on);
    head.children[cursor.column].classList.toggle("on", on);
    frame.setAttribute("visibility", on ? "visible" : "hidden");
  }
  function leave() {
    mark(false);
    hideTooltip();
  }
  function show(row, column) {
    mark(false);
    cursor = { row, column };
    frame.setAttribute("x", column * size);
    frame.setAttribute("y", row * size);
    mark(true);
    const weight = matrix[row * columns.length + column];
    const side = row * size < LABEL_ROOM ? "below" : "above"; // and never over the labels
    showTooltip([[percent(weight), "strong"], [`${rows[row].text} → ${columns[column].text}`]], frame, side);
  }
  // Keeps the cell clear of the labels, which stay in place.
  function bringIntoView() {
    const [box, hidden, shown] = [frame, corner, map].map((part) => part.getBoundingClientRect());
    const right = shown.left + map.clientWidth - 1; // the frame's line needs room
    const bottom = shown.top + map.clientHeight - 1;
    map.scrollLeft += Math.min(box.left - 1 - hidden.right, 0) + Math.max(box.right - right, 0);
    map.scrollTop += Math.min(box.top - 1 - hidden.bottom, 0) + Math.max(box.bottom - bottom, 0);
  }

  cells.addEventListener("pointermove", (event) => {
    const box = cells.getBoundingClientRect();
    const x = event.clientX - box.left;
    const y = event.clientY - box.top;
    if (x < 0 || y < 0 || x >= width || y >= height) return leave();
    show(Math.floor(y / size), Math.floor(x / size));
  });
  cells.addEventListener("pointerleave", leave);
  map.addEventListener("blur", leave);
  map.addEventListener("focus", () => {
    if (map.matches(":focus-visible")) show(cursor?.row ?? 0, cursor?.column ?? 0);
  });
  map.addEventListener("keydown", (event) => {
    const { row, column } = cursor ?? { row: 0, column: 0 };
    const moves = {
      ArrowUp: [row - 1, column], ArrowDown: [row + 1, column], ArrowLeft: [row, column - 1], ArrowRight: [row, column + 1],
      Home: [row, 0], End: [row, columns.length - 1], PageUp: [0, column], PageDown: [rows.length - 1, column],
    };
    if (event.key === "Escape") leave();
    if (!(event.key in moves)) return;
    event.preventDefault();
    cursor ??= { row: 0, column: 0 };
    const [nextRow, nextColumn] = moves[event.key];
    show(clamp(0, nextRow, rows.length - 1), clamp(0, nextColumn, columns.length - 1));
    bringIntoView();
    placeTooltip();
  });
}
