"use strict";
// The numbers: decoding them, and one matrix out of many.

const DATA = JSON.parse(document.getElementById("data").textContent);
const FULL_WEIGHT = 65535; // what a weight of 1 is written as
const MEAN = "mean"; // stands for all layers or all heads

const AXES = {
  cross: { rows: "target", columns: "source", rowName: "translation", columnName: "source" },
  "encoder-self": { rows: "source", columns: "source", rowName: "looks", columnName: "is looked at" },
  "decoder-self": { rows: "target", columns: "input", rowName: "translation", columnName: "written before" },
};

function decode(text) {
  const bytes = Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
  const view = new DataView(bytes.buffer);
  return Float32Array.from({ length: bytes.length / 2 }, (_, i) => view.getUint16(2 * i, true) / FULL_WEIGHT);
}

// Weights of one kind in one sentence.
class Tensor {
  constructor(sentence, { kind, description, layers, heads, weights }) {
    const axes = AXES[kind];
    Object.assign(this, { kind, description, layers, heads, axes });
    this.rows = sentence.units[axes.rows]; // of { text, special }
    this.columns = sentence.units[axes.columns];
    this.weights = decode(weights);
    this.made = new Map();
  }

  // One matrix, row by row; of MEAN layers or heads, their mean.
  matrix(layer, head) {
    const key = `${layer},${head}`;
    if (!this.made.has(key)) this.made.set(key, this.mean(this.places(layer, head)));
    return this.made.get(key);
  }

  places(layer, head) {
    const chosen = (numbers, wanted) =>
      numbers === null ? [0] : wanted === MEAN ? numbers.map((_, i) => i) : [numbers.indexOf(wanted)];
    const heads = this.heads === null ? 1 : this.heads.length;
    return chosen(this.layers, layer).flatMap((l) => chosen(this.heads, head).map((h) => l * heads + h));
  }

  mean(places) {
    const size = this.rows.length * this.columns.length;
    if (places.length === 1) return this.weights.subarray(places[0] * size, (places[0] + 1) * size);
    const sum = new Float32Array(size);
    for (const place of places) for (let i = 0; i < size; i++) sum[i] += this.weights[place * size + i];
    return sum.map((weight) => weight / places.length);
  }
}

const decoded = new Map();

function tensorOf(sentenceIndex, kind) {
  const key = `${sentenceIndex} ${kind}`;
  if (!decoded.has(key)) {
    const sentence = DATA.sentences[sentenceIndex];
    decoded.set(key, new Tensor(sentence, sentence.tensors.find((tensor) => tensor.kind === kind)));
  }
  return decoded.get(key);
}
