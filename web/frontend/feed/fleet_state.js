/* What the page knows of the fleet: rings of columns in preallocated typed arrays, and the newest words. */

import { BandSeries } from './band_series.js';
import { ENGINE_BYTES, ENGINE_FLOATS, NOW_FLOATS, POOL_FLOATS } from './frame_reader.js';

/** What a byte ring holds where nothing is known. */
export const UNKNOWN_BYTE = 255;
const MAX_MARKERS = 64;

const rings = (names, make) => Object.fromEntries(names.map((name) => [name, make()]));

/**
 * A stretch of the fleet: five minutes live, or any of the past. Columns have absolute numbers; `index` is the
 * newest, `first` the oldest. Rows below `engines.length` are engines, those above are bands (BandSeries).
 */
export class FleetState {
  constructor() {
    this.seq = -1;
    this.generation = 0;
    this.engines = [];
    this.pools = [];
    this.markers = [];
    this.columns = 0;
    this.index = null;
    this.bands = new BandSeries(this);
  }

  /** Shape that column frames must have. */
  get shape() {
    return { engines: this.engines.length, pools: this.pools.length };
  }

  get first() {
    return this.index - this.columns + 1;
  }

  /** Seconds that the picture shows. */
  get spanS() {
    return this.columns * this.columnS;
  }

  /** Unix seconds of the left edge of a column. */
  timeOf(index) {
    return index * this.columnS;
  }

  /** Replace everything by a keyframe. */
  applyKeyframe(frame) {
    const { head } = frame;
    this.generation += 1;
    this.livePools = null;
    this.liveRefusals = null;
    this.columns = head.columns;
    this.columnS = head.column_s;
    this.hourColumns = head.strip_columns;
    this.hourColumnS = head.strip_column_s;
    this.states = head.states;
    this.engines = head.engines;
    this.pools = head.pools;
    this.markers = head.markers;
    this.roster = head.roster ?? '';
    this.index = head.index;
    this.engineRing = rings(ENGINE_FLOATS, () => new Float32Array(this.engines.length * this.columns));
    this.engineByteRing = rings(ENGINE_BYTES, () => new Uint8Array(this.engines.length * this.columns));
    this.poolRing = rings(POOL_FLOATS, () => new Float32Array(this.pools.length * this.columns));
    this.heardRing = new Uint8Array(this.columns);
    this.refusalRing = new Array(this.columns).fill(null);
    this.hour = frame.hour.slice();
    this.bands.reset();
    this.#takeHead(head, frame);
    if (this.index === null) return;
    for (let place = 0; place < this.columns; place += 1) this.#takeColumn(this.first + place, frame, place, this.columns);
  }

  /** Take over a column frame; false when one was missed and only a keyframe can help. */
  applyColumn(frame) {
    const { head } = frame;
    if (head.seq !== this.seq + 1 || this.index === null || head.index < this.index) return false;
    this.advance(head.index);
    this.#takeColumn(head.index, frame, 0, 1);
    this.#shiftHour(head.strip_index - this.hourIndex, frame.hour);
    for (const [row, facts] of head.facts) this.engines[row] = facts;
    const replaced = new Set(head.markers.map((marker) => marker.replaces));
    this.markers = [...this.markers.filter((marker) => !replaced.has(marker.number)), ...head.markers]
      .filter((marker) => marker.at >= this.timeOf(this.first)).slice(-MAX_MARKERS);
    this.#takeHead(head, frame);
    return true;
  }

  /** Take over the columns that follow a picture of the past; false when they are those of another topology. */
  applyMore(frame) {
    const { head } = frame;
    if (head.roster !== this.roster || this.index === null || head.index < this.index) return false;
    const from = head.index - head.columns + 1;
    if (from > this.index + 1) return false;
    this.advance(head.index);
    for (let place = 0; place < head.columns; place += 1) {
      if (from + place >= this.first) this.#takeColumn(from + place, frame, place, head.columns);
    }
    // The last columns may have changed, not only grown.
    this.generation += 1;
    this.hour = frame.hour.slice();
    this.markers = head.markers;
    this.#takeHead(head, frame);
    return true;
  }

  /** Move the right edge to column `index`; what lies between is unknown. */
  advance(index) {
    for (let next = Math.max(this.index + 1, index - this.columns + 1); next <= index; next += 1) this.#clearColumn(next);
    this.index = Math.max(this.index, index);
  }

  /** Take over the words and newest values of another state's engines, by their ids: a past that reaches until now. */
  takeNow(live) {
    const width = NOW_FLOATS.length;
    live.engines.forEach((engine, row) => {
      const mine = this.engineRow(engine.id);
      if (mine < 0) return;
      this.engines[mine] = engine;
      this.now.set(live.now.subarray(row * width, (row + 1) * width), mine * width);
    });
    this.livePools = new Map(live.pools.map((pool, row) => [pool.id, (name) => live.poolAt(name, row, live.index)]));
    this.liveRefusals = (poolId) => live.refusalsAt(live.poolRow(poolId), live.index);
    this.verdict = live.verdict;
    this.at = live.at;
    this.snapshotVersion = live.snapshotVersion;
  }

  /** One value of an engine (or band) in a column, NaN for unknown. */
  engineAt(name, row, index) {
    if (index === null || index < this.first || index > this.index) return NaN;
    if (row >= this.engines.length) return this.bands.at(name, row, index);
    return this.engineRing[name][row * this.columns + (index % this.columns)];
  }

  /** Share 0..1 of an engine (kv, hit, predicted), NaN for unknown. */
  shareAt(name, row, index) {
    if (index === null || index < this.first || index > this.index || row >= this.engines.length) return NaN;
    const value = this.engineByteRing[name][row * this.columns + (index % this.columns)];
    return value === UNKNOWN_BYTE ? NaN : value / 200;
  }

  /** State of an engine in a column as a word; '' where nothing was heard. */
  stateAt(row, index) {
    if (index === null || index < this.first || index > this.index || row >= this.engines.length) return '';
    return this.states[this.engineByteRing.state[row * this.columns + (index % this.columns)]] ?? '';
  }

  /** One value of a pool, NaN for unknown. */
  poolAt(name, pool, index) {
    if (index === null || index < this.first || index > this.index) return NaN;
    return this.poolRing[name][pool * this.columns + (index % this.columns)];
  }

  /** The newest value of a pool: the live one where this state reaches until now, else that of the last column. */
  poolNow(name, pool) {
    const live = this.livePools?.get(this.pools[pool].id);
    return live ? live(name) : this.poolAt(name, pool, this.index);
  }

  /** Refusals of a pool per second by code in a column; {} where there was none, or nothing is known. */
  refusalsAt(pool, index) {
    if (index === null || index < this.first || index > this.index) return {};
    return this.refusalRing[index % this.columns]?.get(pool) ?? {};
  }

  /** The newest refusals of a pool per second by code. */
  refusalsNow(pool) {
    return this.liveRefusals ? this.liveRefusals(this.pools[pool].id) : this.refusalsAt(pool, this.index);
  }

  /** Whether anything at all was heard in a column. */
  heardAt(index) {
    return index >= this.first && index <= this.index && this.heardRing[index % this.columns] === 1;
  }

  /** The newest value of an engine (or band), by its name in NOW_FLOATS. */
  nowOf(name, row) {
    if (row >= this.engines.length) return this.bands.at(name, row, this.index);
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
    const { columns } = this;
    const slot = index % columns;
    const states = frame.engineBytes.state;
    let heard = 0;
    for (const name of ENGINE_FLOATS) {
      const [ring, values] = [this.engineRing[name], frame.engineFloats[name]];
      for (let row = 0; row < this.engines.length; row += 1) ring[row * columns + slot] = values[row * width + place];
    }
    for (const name of ENGINE_BYTES) {
      const [ring, values] = [this.engineByteRing[name], frame.engineBytes[name]];
      for (let row = 0; row < this.engines.length; row += 1) ring[row * columns + slot] = values[row * width + place];
    }
    for (let row = 0; row < this.engines.length && !heard; row += 1) heard = states[row * width + place] === UNKNOWN_BYTE ? 0 : 1;
    for (let pool = 0; pool < this.pools.length; pool += 1) {
      for (const name of POOL_FLOATS) this.poolRing[name][pool * columns + slot] = frame.poolFloats[name][pool * width + place];
    }
    this.heardRing[slot] = heard;
    const refused = frame.head.refusals.filter(([, at]) => at === place);
    this.refusalRing[slot] = refused.length ? new Map(refused.map(([pool, , codes]) => [pool, codes])) : null;
    this.bands.changed(index);
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
    this.heardRing[slot] = 0;
    this.refusalRing[slot] = null;
    this.bands.changed(index);
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
