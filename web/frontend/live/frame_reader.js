/* Reads the binary frames that web/live/frames.py writes; that file describes them. */

/** @import { ColumnFrame, Frame, Keyframe, MoreFrame, Shape } from './frame_types.js' */

export const NOW_FLOATS = ['tokens', 'seconds', 'running', 'bound', 'kv', 'report_age_s', 'oldest_s'];
export const ENGINE_FLOATS = ['tokens', 'seconds', 'running', 'bound', 'mean_s'];
export const ENGINE_BYTES = ['state', 'kv', 'hit', 'predicted'];
export const POOL_FLOATS = [
  'cv',
  'on_time',
  'hit',
  'ttft_p50_s',
  'ttft_p90_s',
  'ttft_p99_s',
  'requests_per_s',
  'prompt_tokens_per_s',
  'unbound',
  'unbound_tokens',
  'oldest_wait_s',
  'late',
  'bound',
  'dispatched_at_once_per_s',
  'dispatched_waited_per_s',
  'queue_wait_mean_s',
  'queue_wait_p90_s',
  'migrations_per_s',
  'overtaken_per_s',
  'rejections_per_s',
  'failed',
  'rejected',
];
export const PROTOCOL = 4;

/** The bytes are no frame of this protocol, or belong to another topology. */
export class FrameError extends Error {}

/**
 * Read the JSON head of a frame.
 * @param {ArrayBuffer} buffer
 */
export function readHead(buffer) {
  const length = new DataView(buffer).getUint32(0, true);
  return JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, length)));
}

/**
 * Read a frame. `shape` {engines, pools} is that of the last keyframe; a keyframe brings its own.
 * A `more` frame of the past has several columns and a whole strip, a column frame one of each.
 * Returns {head, now, engineFloats, poolFloats, hour, engineBytes}; the arrays are views into the buffer.
 * @param {ArrayBuffer} buffer
 * @param {Shape} [shape]
 * @returns {Frame}
 */
export function readFrame(buffer, shape) {
  const head = readHead(buffer);
  const keyframe = head.kind === 'keyframe';
  if (keyframe && head.protocol !== PROTOCOL) throw new FrameError(`protocol ${head.protocol} is not ${PROTOCOL}`);
  const fits = keyframe ? { engines: head.engines.length, pools: head.pools.length } : shape;
  if (!fits) throw new FrameError('a column came before its keyframe');
  const { engines, pools } = fits;
  const columns = head.columns ?? 1;
  const hourColumns = head.strip_columns ?? 1;
  let offset = 4 + new DataView(buffer).getUint32(0, true);
  const expected =
    offset +
    4 *
      (engines * NOW_FLOATS.length +
        engines * columns * ENGINE_FLOATS.length +
        pools * columns * POOL_FLOATS.length +
        pools * hourColumns) +
    engines * columns * ENGINE_BYTES.length;
  if (buffer.byteLength !== expected) throw new FrameError(`${buffer.byteLength} bytes, not ${expected}`);
  /** @param {number} length */
  const floats = (length) => {
    const view = new Float32Array(buffer, offset, length);
    offset += 4 * length;
    return view;
  };
  /** @param {number} length */
  const bytes = (length) => {
    const view = new Uint8Array(buffer, offset, length);
    offset += length;
    return view;
  };
  /**
   * @template T
   * @param {string[]} names
   * @param {() => T} read
   * @returns {Record<string, T>}
   */
  const named = (names, read) => Object.fromEntries(names.map((name) => [name, read()]));
  return {
    head,
    now: floats(engines * NOW_FLOATS.length),
    engineFloats: named(ENGINE_FLOATS, () => floats(engines * columns)),
    poolFloats: named(POOL_FLOATS, () => floats(pools * columns)),
    hour: floats(pools * hourColumns),
    engineBytes: named(ENGINE_BYTES, () => bytes(engines * columns)),
  };
}

/**
 * @param {Frame} frame
 * @returns {frame is Keyframe}
 */
export const isKeyframe = (frame) => frame.head.kind === 'keyframe';

/**
 * @param {Frame} frame
 * @returns {frame is ColumnFrame}
 */
export const isColumn = (frame) => frame.head.kind === 'column';

/**
 * @param {Frame} frame
 * @returns {frame is MoreFrame}
 */
export const isMore = (frame) => frame.head.kind === 'more';
