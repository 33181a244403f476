// The choices, and drawing anew what they change.

const VIEWS = { heatmap: ["Heatmap", drawHeatmap], links: ["Words", drawLinks] };
const KINDS = { cross: "Cross", "encoder-self": "Encoder self", "decoder-self": "Decoder self" };
const HINTS = {
  heatmap: "Rows look, columns are looked at: hover, or move with the arrow keys. Colours go by the square root of the weight, so that small ones can be seen.",
  links: "A line is as strong as its weight; below 2 % there is none. Point at a word, or move with the arrow keys, to see its lines alone.",
};
const LONG_TEXT = 200; // characters; a longer one is set smaller
const MULTIPLE_SIDE = [56, 92]; // pixels of a small heatmap's longer side

const byId = (id) => document.getElementById(id);
const kinds = DATA.sentences[0].tensors.map((tensor) => tensor.kind);
const state = { sentence: 0, kind: kinds[0], view: "heatmap", layer: MEAN, head: MEAN };

const chosenTensor = () => tensorOf(state.sentence, state.kind);

// Which attention, of which layers and heads; what was reduced before the page was made has its words already.
function whereIs({ description: [kind, layers, heads], layers: apart, heads: headsApart }, layer, head) {
  const one = (name, numbers, chosen, words) => {
    if (numbers === null) return words;
    if (chosen === MEAN && numbers.length > 1) return `mean of ${numbers.length} ${name}s`;
    return `${name} ${chosen === MEAN ? numbers[0] : chosen}`;
  };
  return [kind, one("layer", apart, layer, layers), one("head", headsApart, head, heads)].join(" · ");
}

function draw() {
  const tensor = chosenTensor();
  const { source, translation } = DATA.sentences[state.sentence];
  for (const [id, text] of [["source", source], ["translation", translation]]) {
    byId(id).textContent = text;
    byId(id).classList.toggle("long", Math.max(source.length, translation.length) > LONG_TEXT);
  }
  // A layer that this kind lacks, since encoder and decoder differ in depth, gives way to the mean.
  if (!tensor.layers?.includes(state.layer)) state.layer = MEAN;
  if (!tensor.heads?.includes(state.head)) state.head = MEAN;
  fillSelect(byId("layer"), tensor.layers, state.layer);
  fillSelect(byId("head"), tensor.heads, state.head);
  hideTooltip();
  drawMultiples(tensor); // which leave the picture its width
  drawPicture();
}

function drawPicture() {
  const tensor = chosenTensor();
  const where = whereIs(tensor, state.layer, state.head);
  byId("caption").textContent = where;
  const isEmpty = tensor.rows.length === 0 || tensor.columns.length === 0;
  byId("legend").hidden = isEmpty || state.view !== "heatmap";
  byId("hint").textContent = isEmpty ? "" : HINTS[state.view];
  if (isEmpty) {
    byId("drawing").textContent = "Nothing but special tokens.";
    return;
  }
  VIEWS[state.view][1](byId("drawing"), tensor, tensor.matrix(state.layer, state.head), where);
  drawLegend();
}

function drawLegend() {
  const stops = Array.from({ length: 33 }, (_, i) => css(colorAt(i / 32)));
  const ramp = element("div", { class: "ramp" });
  ramp.style.background = `linear-gradient(to right, ${stops.join(", ")})`;
  const ticks = element("div", { class: "ticks" });
  for (const weight of [0, 0.05, 0.2, 0.5, 1]) {
    const tick = element("span", {}, `${100 * weight} %`);
    tick.style.left = `${100 * levelOf(weight)}%`;
    ticks.append(tick);
  }
  byId("legend").replaceChildren(element("div", { class: "scale", role: "img", "aria-label": "Scale of weights" }, ramp, ticks));
}

// Small multiples: a row for each layer, a column for each head, and their means.
function drawMultiples(tensor) {
  const withMean = (numbers) => (numbers === null || numbers.length < 2 ? (numbers ?? [MEAN]) : [...numbers, MEAN]);
  const layers = withMean(tensor.layers);
  const heads = withMean(tensor.heads);
  const alone = layers.length * heads.length < 2 || tensor.rows.length * tensor.columns.length === 0;
  byId("overview").hidden = alone;
  document.querySelector("main").classList.toggle("alone", alone);
  if (alone) return byId("multiples").replaceChildren();
  const longest = Math.max(tensor.rows.length, tensor.columns.length);
  const scale = clamp(MULTIPLE_SIDE[0], longest * 4, MULTIPLE_SIDE[1]) / longest;
  const parts = [element("span"), ...heads.map((head) => element("span", {}, head === MEAN ? MEAN : `head ${head}`))];
  for (const layer of layers) {
    parts.push(element("span", {}, layer === MEAN ? MEAN : `layer ${layer}`));
    for (const head of heads) parts.push(multiple(tensor, layer, head, scale));
  }
  const grid = byId("multiples");
  grid.style.gridTemplateColumns = `auto repeat(${heads.length}, max-content)`;
  grid.replaceChildren(...parts);
  watchMultiples([...grid.querySelectorAll("button")], heads.length);
}

function multiple(tensor, layer, head, scale) {
  const isChosen = layer === singleOrMean(tensor.layers, state.layer) && head === singleOrMean(tensor.heads, state.head);
  const button = element("button", {
    type: "button", role: "radio", "aria-checked": isChosen, tabindex: isChosen ? 0 : -1,
    "aria-label": whereIs(tensor, layer, head), title: whereIs(tensor, layer, head),
  });
  const [width, height] = [tensor.columns.length, tensor.rows.length];
  const canvas = element("canvas", { width, height });
  canvas.style.width = `${width * scale}px`;
  canvas.style.height = `${height * scale}px`;
  const context = canvas.getContext("2d");
  const image = context.createImageData(width, height);
  tensor.matrix(layer, head).forEach((weight, i) => image.data.set([...colorAt(levelOf(weight)), 255], 4 * i));
  context.putImageData(image, 0, 0);
  button.append(canvas);
  button.choose = () => Object.assign(state, { layer, head });
  return button;
}

const singleOrMean = (numbers, chosen) => (numbers?.length === 1 ? numbers[0] : chosen);

function watchMultiples(buttons, perRow) {
  const choose = (index) => {
    buttons[index].choose();
    draw();
    byId("multiples").querySelectorAll("button")[index].focus();
  };
  buttons.forEach((button, index) => {
    button.addEventListener("click", () => choose(index));
    button.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -perRow, ArrowDown: perRow }[event.key];
      if (step === undefined) return;
      event.preventDefault();
      if (buttons[index + step]) choose(index + step);
    });
  });
}

function fillSelect(select, numbers, chosen) {
  const many = numbers !== null && numbers.length > 1;
  select.parentElement.hidden = !many;
  if (!many) return;
  select.replaceChildren(...[MEAN, ...numbers].map((number) => element("option", { value: number }, number)));
  select.value = chosen;
}

function fillRadios(fieldset, name, choices) {
  for (const [value, text] of choices) {
    const input = element("input", { type: "radio", name, value });
    input.checked = state[name] === value;
    input.addEventListener("change", () => {
      state[name] = value;
      draw();
    });
    fieldset.append(element("label", {}, input, text));
  }
  fieldset.hidden = choices.length < 2;
}

function setUp() {
  fillRadios(byId("kinds"), "kind", kinds.map((kind) => [kind, KINDS[kind]]));
  fillRadios(byId("views"), "view", Object.entries(VIEWS).map(([view, [name]]) => [view, name]));
  for (const name of ["layer", "head"]) {
    byId(name).addEventListener("change", (event) => {
      state[name] = event.target.value === MEAN ? MEAN : Number(event.target.value);
      draw();
    });
  }
  const sentences = byId("sentence");
  DATA.sentences.forEach(({ source }, i) => {
    const short = source.length > 60 ? source.slice(0, 58) + "…" : source;
    sentences.append(element("option", { value: i }, `${i + 1}. ${short}`));
  });
  byId("sentence-choice").hidden = DATA.sentences.length < 2;
  sentences.addEventListener("change", () => {
    state.sentence = Number(sentences.value);
    draw();
  });
  const nameTheme = () => (byId("theme").textContent = isDark() ? "Light" : "Dark");
  byId("theme").addEventListener("click", () => {
    document.documentElement.dataset.theme = isDark() ? "light" : "dark";
    nameTheme();
    draw();
  });
  systemIsDark.addEventListener("change", () => {
    nameTheme();
    draw();
  });
  nameTheme();
  draw();
  let width = byId("drawing").clientWidth;
  new ResizeObserver(() => {
    if (byId("drawing").clientWidth === width) return;
    width = byId("drawing").clientWidth;
    drawPicture();
  }).observe(byId("drawing"));
}

setUp();
