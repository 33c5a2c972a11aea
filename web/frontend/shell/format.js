/* Formats numbers and times. Unknown is a dash, never a zero. */

export const NARROW = '\u202f';
export const UNKNOWN = '—';
const MINUS = '\u2212';
const MONTHS = ['Jan', 'Feb', 'Mar', 'Apr', 'May', 'Jun', 'Jul', 'Aug', 'Sep', 'Oct', 'Nov', 'Dec'];

/** @param {number | null | undefined} value */
/**
 * @param {number | null | undefined} value
 * @returns {value is number}
 */
const known = (value) => value !== null && value !== undefined && Number.isFinite(value);

/**
 * Three significant digits when short, base 1000: 640, 3.6k, 128k, 0.98M.
 * @param {number | null | undefined} value
 */
export function short(value) {
  if (!known(value)) return UNKNOWN;
  const size = Math.abs(value);
  const sign = value < 0 ? MINUS : '';
  if (size < 999.5) return sign + String(Math.round(size));
  if (size < 9950) return `${sign}${(size / 1000).toFixed(1)}k`;
  if (size < 979500) return `${sign}${Math.round(size / 1000)}k`;
  if (size < 9.95e6) return `${sign}${(size / 1e6).toFixed(size < 999500 ? 2 : 1)}M`;
  return `${sign}${Math.round(size / 1e6).toLocaleString('en-US')}M`;
}

/**
 * A whole number with commas for thousands.
 * @param {number | null | undefined} value
 */
export function whole(value) {
  return known(value) ? Math.round(value).toLocaleString('en-US').replace('-', MINUS) : UNKNOWN;
}

/**
 * [figure, unit] of a duration: µs below 1 ms, ms below 1 s, then s with two and one decimals, then minutes.
 * @param {number | null | undefined} seconds
 */
export function durationParts(seconds) {
  if (!known(seconds)) return [UNKNOWN, ''];
  if (seconds <= 0) return ['0', 's'];
  if (seconds < 0.0009995) return [String(Math.round(seconds * 1e6)), 'µs'];
  if (seconds < 0.9995) return [String(Math.round(seconds * 1e3)), 'ms'];
  if (seconds < 9.995) return [seconds.toFixed(2), 's'];
  if (seconds < 59.95) return [seconds.toFixed(1), 's'];
  return longDuration(Math.round(seconds));
}

/** @param {number} seconds */
function longDuration(seconds) {
  /** @type {[size: number, name: string, restSize: number, restName: string][]} */
  const units = [
    [86400, 'd', 3600, 'h'],
    [3600, 'h', 60, 'min'],
    [60, 'min', 1, 's'],
  ];
  const [size, name, restSize, restName] = units.find(([length]) => seconds >= length) ?? units[2];
  const rest = Math.floor((seconds % size) / restSize);
  return [String(Math.floor(seconds / size)), rest ? `${name} ${rest}${NARROW}${restName}` : name];
}

/**
 * Two durations in the unit of the longer one: ['456', '991 ms'], ['0.65', '2.65 s'].
 * @param {number} shorter
 * @param {number} longer
 */
export function durationPair(shorter, longer) {
  const [figure, unit] = durationParts(longer);
  if (unit !== 'ms' && unit !== 's') return [duration(shorter), duration(longer)];
  if (!known(shorter)) return [UNKNOWN, figure + NARROW + unit];
  return [unit === 'ms' ? String(Math.round(shorter * 1000)) : shorter.toFixed(2), figure + NARROW + unit];
}

/**
 * A duration as one text, 2.31 s.
 * @param {number | null | undefined} seconds
 */
export function duration(seconds) {
  const [figure, unit] = durationParts(seconds);
  return unit ? figure + NARROW + unit : figure;
}

/**
 * A duration that a person set, without trailing zeros: 3.5 s, 5 s, 250 ms.
 * @param {number | null | undefined} seconds
 */
export function setting(seconds) {
  if (!known(seconds)) return UNKNOWN;
  const [value, unit] = seconds < 1 ? [seconds * 1000, 'ms'] : [seconds, 's'];
  return Number(value.toPrecision(3)) + NARROW + unit;
}

/**
 * Seconds with one decimal, for a column of them.
 * @param {number | null | undefined} value
 */
export function seconds(value) {
  if (!known(value)) return UNKNOWN;
  return value > 0 && value < 0.05 ? `<0.1${NARROW}s` : `${value.toFixed(1)}${NARROW}s`;
}

/**
 * A share 0..1 in percent with one decimal, without the sign.
 * @param {number | null | undefined} share
 */
export function percent(share) {
  return known(share) ? (share * 100).toFixed(1) : UNKNOWN;
}

/**
 * A share 0..1 with its sign, 71.4 %.
 * @param {number | null | undefined} share
 */
export function percentText(share) {
  return known(share) ? percent(share) + NARROW + '%' : UNKNOWN;
}

/**
 * Events per second: 4.2, 118, 1,204.
 * @param {number | null | undefined} value
 */
export function rate(value) {
  if (!known(value)) return UNKNOWN;
  if (value > 0 && value < 0.05) return '<0.1';
  return value < 9.95 ? value.toFixed(1) : whole(value);
}

/**
 * A ratio or coefficient with two decimals.
 * @param {number | null | undefined} value
 */
export function ratio(value) {
  return known(value) ? value.toFixed(2) : UNKNOWN;
}

/**
 * A multiple: 25×, 1.8×.
 * @param {number | null | undefined} value
 */
export function times(value) {
  return known(value) ? `${value < 9.95 ? value.toFixed(1) : whole(value)}×` : UNKNOWN;
}

/**
 * Time of day of unix seconds in UTC, 03:13:18.
 * @param {number | null | undefined} at
 */
export function clock(at) {
  return known(at) ? new Date(at * 1000).toISOString().slice(11, 19) : UNKNOWN;
}

/**
 * Day and time of day of unix seconds in UTC, 20 Nov 03:13.
 * @param {number | null | undefined} at
 */
export function dayClock(at) {
  if (!known(at)) return UNKNOWN;
  const moment = new Date(at * 1000);
  return `${moment.getUTCDate()} ${MONTHS[moment.getUTCMonth()]} ${moment.toISOString().slice(11, 16)}`;
}

/**
 * Age in past ranges: 41 s, 12 min, 3 h 20 min, 5 d ago.
 * @param {number | null | undefined} elapsed
 */
export function longAgo(elapsed) {
  if (!known(elapsed)) return UNKNOWN;
  return elapsed < 1 ? 'just now' : `${duration(Math.floor(elapsed))} ago`;
}

/**
 * Age in whole seconds and then minutes; never negative.
 * @param {number | null | undefined} elapsed
 */
export function ago(elapsed) {
  if (!known(elapsed)) return UNKNOWN;
  if (elapsed < 1) return 'just now';
  if (elapsed < 120) return `${Math.floor(elapsed)}${NARROW}s ago`;
  return `${Math.floor(elapsed / 60)}${NARROW}min ago`;
}

/**
 * A number with its noun: 1 engine, 3 engines.
 * @param {number} number
 * @param {string} noun
 */
export function count(number, noun) {
  return `${whole(number)} ${noun}${number === 1 ? '' : 's'}`;
}
