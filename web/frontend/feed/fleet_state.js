/* What the page knows of the fleet: rings of columns in preallocated typed arrays, and the newest words. */

import { ENGINE_BYTES, ENGINE_FLOATS, NOW_FLOATS, POOL_FLOATS } from './frame_reader.js';

const UNKNOWN_BYTE = 255;
const MAX_MARKERS = 64;

const rings = (names, make) => Object.fromEntries(names.map((name) => [name, make()]));

/** Five minutes of the fleet. Columns have absolute numbers; `index` is the newest, `first` the oldest. */
export class FleetState {
  constructor() {
    this.seq = -1;
    this.generation = 0;
    this.engines = [];
    this.pools = [];
    this.markers = [];
    this.columns = 0;
    this.index = null;
  }

  /** Shape that column frames must have. */
  get shape() {
    return { engines: this.engines.length, pools: this.pools.length };
  }

  get first() {
    return this.index - this.columns + 1;
  }

  /** Unix seconds of the left edge of a column. */
  timeOf(index) {
    return index * this.columnS;
  }

  /** Replace everything by a keyframe. */
  applyKeyframe(frame) {
    const { head } = frame;
    this.generation += 1;
    this.columns = head.columns;
    this.columnS = head.column_s;
    this.hourColumns = head.strip_columns;
    this.hourColumnS = head.strip_column_s;
    this.states = head.states;
    this.engines = head.engines;
    this.pools = head.pools;
    this.markers = head.markers;
    this.index = head.index;
    this.engineRing = rings(ENGINE_FLOATS, () => new Float32Array(this.engines.length * this.columns));
    this.engineByteRing = rings(ENGINE_BYTES, () => new Uint8Array(this.engines.length * this.columns));
    this.poolRing = rings(POOL_FLOATS, () => new Float32Array(this.pools.length * this.columns));
    this.hour = frame.hour.slice();
    this.#takeHead(head, frame);
    if (this.index === null) return;
    for (let place = 0; place < this.columns; place += 1) this.#takeColumn(this.first + place, frame, place, this.columns);
  }

  /** Take over a column frame; false when one was missed and only a keyframe can help. */
  applyColumn(frame) {
    const { head } = frame;
    if (head.seq !== this.seq + 1 || this.index === null || head.index < this.index) return false;
    for (let index = Math.max(this.index + 1, head.index - this.columns + 1); index < head.index; index += 1) this.#clearColumn(index);
    this.index = head.index;
    this.#takeColumn(head.index, frame, 0, 1);
    this.#shiftHour(head.strip_index - this.hourIndex, frame.hour);
    for (const [row, facts] of head.facts) this.engines[row] = facts;
    this.markers = [...this.markers, ...head.markers].filter((marker) => marker.at >= this.timeOf(this.first)).slice(-MAX_MARKERS);
    this.#takeHead(head, frame);
    return true;
  }

  /** One value of an engine in a column, NaN for unknown. */
  engineAt(name, row, index) {
    if (index === null || index < this.first || index > this.index) return NaN;
    return this.engineRing[name][row * this.columns + (index % this.columns)];
  }

  /** Share 0..1 of an engine (kv, hit), NaN for unknown. */
  shareAt(name, row, index) {
    if (index === null || index < this.first || index > this.index) return NaN;
    const value = this.engineByteRing[name][row * this.columns + (index % this.columns)];
    return value === UNKNOWN_BYTE ? NaN : value / 200;
  }

  /** State of an engine in a column as a word; '' where nothing was heard. */
  stateAt(row, index) {
    if (index === null || index < this.first || index > this.index) return '';
    return this.states[this.engineByteRing.state[row * this.columns + (index % this.columns)]] ?? '';
  }

  /** One value of a pool, NaN for unknown. */
  poolAt(name, pool, index) {
    if (index === null || index < this.first || index > this.index) return NaN;
    return this.poolRing[name][pool * this.columns + (index % this.columns)];
  }

  /** The newest value of an engine, by its name in NOW_FLOATS. */
  nowOf(name, row) {
    return this.now[row * NOW_FLOATS.length + NOW_FLOATS.indexOf(name)];
  }

  /** All columns of a series, oldest first: `read(index)` for each. */
  series(read) {
    return Array.from({ length: this.columns }, (_, place) => read(this.first + place));
  }

  poolRow(poolId) {
    return this.pools.findIndex((pool) => pool.id === poolId);
  }

  engineRow(engineId) {
    return this.engines.findIndex((engine) => engine.id === engineId);
  }

  #takeHead(head, frame) {
    this.seq = head.seq;
    this.at = head.at;
    this.windowS = head.window_s;
    this.snapshotVersion = head.snapshot_version;
    this.verdict = head.verdict;
    this.hourIndex = head.strip_index;
    this.now = frame.now.slice();
  }

  #takeColumn(index, frame, place, width) {
    const slot = index % this.columns;
    for (let row = 0; row < this.engines.length; row += 1) {
      for (const name of ENGINE_FLOATS) this.engineRing[name][row * this.columns + slot] = frame.engineFloats[name][row * width + place];
      for (const name of ENGINE_BYTES) this.engineByteRing[name][row * this.columns + slot] = frame.engineBytes[name][row * width + place];
    }
    for (let pool = 0; pool < this.pools.length; pool += 1) {
      for (const name of POOL_FLOATS) this.poolRing[name][pool * this.columns + slot] = frame.poolFloats[name][pool * width + place];
    }
  }

  #clearColumn(index) {
    const slot = index % this.columns;
    for (let row = 0; row < this.engines.length; row += 1) {
      for (const name of ENGINE_FLOATS) this.engineRing[name][row * this.columns + slot] = NaN;
      for (const name of ENGINE_BYTES) this.engineByteRing[name][row * this.columns + slot] = UNKNOWN_BYTE;
    }
    for (let pool = 0; pool < this.pools.length; pool += 1) {
      for (const name of POOL_FLOATS) this.poolRing[name][pool * this.columns + slot] = NaN;
    }
  }

  #shiftHour(by, newest) {
    const width = this.hourColumns;
    for (let pool = 0; pool < this.pools.length; pool += 1) {
      const row = this.hour.subarray(pool * width, (pool + 1) * width);
      if (by > 0) {
        row.copyWithin(0, Math.min(by, width));
        row.fill(NaN, Math.max(0, width - by));
      }
      row[width - 1] = newest[pool];
    }
  }
}
