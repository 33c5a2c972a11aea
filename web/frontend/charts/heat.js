/* <hw-heat>: in-flight work of the rows of one pool, a row per engine or band, a column per interval. */

import { FleetState } from '../live/fleet_state.js';
import { overlayRuns } from './cell_overlay.js';
import { heatPosition } from './log_scale.js';
import { palette } from './palette.js';
import { ColumnStore } from './column_store.js';
import { hatchPattern } from './hatch.js';
import { Picture, columnEdge } from './picture.js';

/** @type {Record<string, string>} */
const HATCH_LINES = { lost: '--bad', quarantined: '--warn', away: '--line-strong' };
/** Columns that one bar of the narrow picture covers, so that bars are distinct. */
const BARS = 48;

export class Heat extends Picture {
  state = new FleetState();
  /** @type {number[]} */
  rows = [];
  sloS = NaN;
  pitch = 0;
  bars = false;
  store = new ColumnStore();

  /**
   * Show rows `rows` of `state`, each `pitch` CSS pixels high; `bars` draws heights in place of cells, for narrow
   * pages.
   * @param {FleetState} state
   * @param {number[]} rows
   * @param {number} sloS
   * @param {number} pitch
   */
  show(state, rows, sloS, pitch, bars = false) {
    Object.assign(this, { state, rows, sloS, pitch, bars });
    this.invalidate();
  }

  paint() {
    const { context, width, height, state, rows } = this;
    if (state.index === null || !width || !rows.length) return;
    const { colour, heat } = palette();
    const cells = this.store.sync(state, rows, this.sloS, heat);
    context.fillStyle = colour('--sunken');
    context.fillRect(0, 0, width, height);
    context.imageSmoothingEnabled = false;
    if (this.bars) rows.forEach((row, index) => this.#bars(row, this.#edge(index), this.#edge(index + 1)));
    else if (Number.isInteger(this.pitch * this.ratio))
      context.drawImage(cells, 0, 0, state.columns, rows.length, 0, 0, width, this.#edge(rows.length));
    else
      rows.forEach((_, index) =>
        context.drawImage(
          cells,
          0,
          index,
          state.columns,
          1,
          0,
          this.#edge(index),
          width,
          this.#edge(index + 1) - this.#edge(index),
        ),
      );
    rows.forEach((row, index) =>
      this.#overlays(row, this.#edge(index), this.#edge(index + 1) - this.#edge(index) - this.#gap),
    );
    context.fillStyle = colour('--surface');
    rows.forEach((_, index) => context.fillRect(0, this.#edge(index + 1) - this.#gap, width, this.#gap));
    this.dataset.index = String(state.index);
    this.dataset.painted = String(Number(this.dataset.painted ?? 0) + 1);
  }

  get #gap() {
    return Math.max(1, Math.round(this.ratio)) * (this.bars ? 4 : 1);
  }

  /** @param {number} index */
  #edge(index) {
    return Math.round(index * this.pitch * this.ratio);
  }

  /**
   * @param {number} row
   * @param {number} top
   * @param {number} tall
   */
  #overlays(row, top, tall) {
    for (const [kind, from, to] of overlayRuns(this.state, row)) this.#overlay(kind, from, to, top, tall);
  }

  /**
   * @param {string} kind
   * @param {number} from
   * @param {number} to
   * @param {number} top
   * @param {number} tall
   */
  #overlay(kind, from, to, top, tall) {
    const { context, state, width, ratio } = this;
    const left = columnEdge(from - state.first, state.columns, width);
    const wide = columnEdge(to - state.first, state.columns, width) - left;
    const { colour } = palette();
    if (kind === 'leaving') {
      context.fillStyle = colour('--info');
      context.fillRect(left, top + tall - Math.round(ratio), wide, Math.round(ratio));
      return;
    }
    context.fillStyle = hatchPattern(context, colour('--sunken'), colour(HATCH_LINES[kind]), ratio);
    context.fillRect(left, top, wide, tall);
  }

  /**
   * Draw bars: each is the peak of a few columns, coloured by its height.
   * @param {number} row
   * @param {number} top
   * @param {number} bottom
   */
  #bars(row, top, bottom) {
    const { context, state, width } = this;
    const { heat } = palette();
    const ground = bottom - this.#gap;
    const span = Math.max(1, Math.ceil(state.columns / BARS));
    const bars = Math.ceil(state.columns / span);
    for (let bar = 0; bar < bars; bar += 1) {
      let peak = NaN;
      for (let column = bar * span; column < Math.min(state.columns, (bar + 1) * span); column += 1) {
        const waitS = state.engineAt('seconds', row, state.first + column);
        if (!(peak >= waitS) && !Number.isNaN(waitS)) peak = waitS;
      }
      if (Number.isNaN(peak)) continue;
      const position = heatPosition(peak, this.sloS);
      const entry = Math.round(position * 255) * 3;
      const left = columnEdge(bar, bars, width);
      const tall = Math.max(2, Math.round(position * (ground - top)));
      context.fillStyle = `rgb(${heat[entry]} ${heat[entry + 1]} ${heat[entry + 2]})`;
      context.fillRect(left, ground - tall, Math.max(1, columnEdge(bar + 1, bars, width) - left - 1), tall);
    }
  }
}

customElements.define('hw-heat', Heat);
