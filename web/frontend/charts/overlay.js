/* <hw-overlay>: drawn over all charts of the shared time axis: gaps, marker lines, crosshair, cell cursor. */

import { palette } from './palette.js';
import { hatchPattern } from './hatch.js';
import { Picture, columnEdge } from './picture.js';

/**
 * Tops and heights are CSS pixels.
 * @typedef {object} Scene
 * @property {number} columns
 * @property {[from: number, to: number][]} gaps
 * @property {{ column: number, lead: boolean }[]} lines
 * @property {number | null} crosshair
 * @property {{ top: number, height: number } | null} row
 * @property {{ column: number, top: number, height: number } | null} cell
 */

export class Overlay extends Picture {
  /** @type {Scene} */
  scene = { columns: 0, gaps: [], lines: [], crosshair: null, row: null, cell: null };

  /** @param {Scene} scene */
  show(scene) {
    this.scene = scene;
    this.invalidate();
  }

  paint() {
    const { context, width, height, scene, ratio } = this;
    context.clearRect(0, 0, width, height);
    const { colour } = palette();
    for (const [from, to] of scene.gaps) this.#gap(from, to);
    for (const { column, lead } of scene.lines)
      this.#line(column, colour(lead ? '--ink' : '--ink-3'), lead ? 0.85 : 0.6, lead ? [] : [ratio, 2 * ratio]);
    if (scene.crosshair !== null) this.#line(scene.crosshair, colour('--ink'), 0.35, []);
    if (scene.row) this.#frame(0, scene.row.top, width / ratio, scene.row.height);
    if (scene.cell) this.#cell(scene.cell);
  }

  /**
   * Draw a gap: time in which Headway did not run or this view was disconnected.
   * @param {number} from
   * @param {number} to
   */
  #gap(from, to) {
    const { context, height, ratio } = this;
    const left = columnEdge(from, this.scene.columns, this.width);
    const wide = columnEdge(to, this.scene.columns, this.width) - left;
    context.fillStyle = hatchPattern(context, palette().colour('--sunken'), palette().colour('--line'), ratio);
    context.fillRect(left, 0, wide, height);
    context.fillStyle = palette().colour('--line-strong');
    for (const edge of [left, left + wide - Math.round(ratio)]) context.fillRect(edge, 0, Math.round(ratio), height);
  }

  /**
   * @param {number} column
   * @param {string} colour
   * @param {number} opacity
   * @param {number[]} dash
   */
  #line(column, colour, opacity, dash) {
    const { context, height, ratio } = this;
    const x = Math.floor(this.#middle(column)) + 0.5;
    context.globalAlpha = opacity;
    context.strokeStyle = colour;
    context.lineWidth = Math.round(ratio);
    context.setLineDash(dash);
    context.beginPath();
    context.moveTo(x, 0);
    context.lineTo(x, height);
    context.stroke();
    context.setLineDash([]);
    context.globalAlpha = 1;
  }

  /** @param {number} column */
  #middle(column) {
    const { columns } = this.scene;
    return (columnEdge(column, columns, this.width) + columnEdge(column + 1, columns, this.width)) / 2;
  }

  /**
   * @param {number} left
   * @param {number} top
   * @param {number} wide
   * @param {number} tall
   */
  #frame(left, top, wide, tall) {
    const { context, ratio } = this;
    context.strokeStyle = palette().colour('--ink');
    context.lineWidth = Math.round(ratio);
    const half = context.lineWidth / 2;
    context.strokeRect(
      left * ratio + half,
      Math.round(top * ratio) - half,
      wide * ratio - 2 * half,
      Math.round(tall * ratio),
    );
  }

  /** @param {{ column: number, top: number, height: number }} cell */
  #cell({ column, top, height }) {
    const { context, ratio, scene } = this;
    const left = columnEdge(column, scene.columns, this.width) - 2 * ratio;
    const right = columnEdge(column + 1, scene.columns, this.width) + 2 * ratio;
    for (const [name, line] of /** @type {[string, number][]} */ ([
      ['--bg', 5],
      ['--ink', 2],
    ])) {
      context.strokeStyle = palette().colour(name);
      context.lineWidth = line * ratio;
      context.beginPath();
      context.roundRect(left, top * ratio - 2 * ratio, right - left, height * ratio + 3 * ratio, 2 * ratio);
      context.stroke();
    }
  }
}

customElements.define('hw-overlay', Overlay);
