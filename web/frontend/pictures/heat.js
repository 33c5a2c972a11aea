/* <sy-heat>: outstanding work of the engines of one pool, a row per engine and a column per two seconds. */

import { palette } from '../scale/palette.js';
import { ColumnStore } from './column_store.js';
import { hatchPattern } from './hatch.js';
import { Picture, columnEdge } from './picture.js';

const HATCH_LINES = { lost: '--bad', away: '--line-strong' };

/** What to draw over a cell: 'lost' or 'away' (hatch), 'leaving' (a line under it), '' (nothing). */
export function cellOverlay(state, tokens) {
  if (state === 'lost') return 'lost';
  if (state === 'maintenance') return 'away';
  if (state === 'draining') return tokens > 0 ? 'leaving' : 'away';
  return '';
}

export class Heat extends Picture {
  /** Show engine rows `rows` of `state`, each `pitch` CSS pixels high. */
  show(state, rows, sloS, pitch) {
    this.state = state;
    this.rows = rows;
    this.sloS = sloS;
    this.pitch = pitch;
    this.store ??= new ColumnStore();
    this.invalidate();
  }

  paint() {
    const { context, width, height, state, rows } = this;
    if (!state || state.index === null || !width) return;
    const { colour, heat } = palette();
    const cells = this.store.sync(state, rows, this.sloS, heat);
    context.fillStyle = colour('--surface');
    context.fillRect(0, 0, width, height);
    context.imageSmoothingEnabled = false;
    rows.forEach((row, place) => {
      const top = Math.round(place * this.pitch * this.ratio);
      const tall = Math.round((place + 1) * this.pitch * this.ratio) - top - Math.max(1, Math.round(this.ratio));
      context.fillStyle = colour('--sunken');
      context.fillRect(0, top, width, tall);
      context.drawImage(cells, 0, place, state.columns, 1, 0, top, width, tall);
      this.#overlays(row, top, tall);
    });
    this.dataset.index = String(state.index);
    this.dataset.painted = String(Number(this.dataset.painted ?? 0) + 1);
  }

  #overlays(row, top, tall) {
    const { state } = this;
    let from = state.first;
    let kind = null;
    for (let index = state.first; index <= state.index + 1; index += 1) {
      const here = index > state.index ? null : cellOverlay(state.stateAt(row, index), state.engineAt('tokens', row, index));
      if (here === kind) continue;
      if (kind) this.#overlay(kind, from, index, top, tall);
      from = index;
      kind = here;
    }
  }

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
}

customElements.define('sy-heat', Heat);
