/* Formats numbers and times by the steps that controlplane/platform/format.py explains; exact halves may be rounded
   differently there. Unknown is a dash, never a zero. */
import FORMATS from '../../../controlplane/platform/formats.json' with { type: 'json' };

export const NARROW = '\u202f';
export const UNKNOWN = FORMATS.unknown;
const DIGITS = [0, 1, 2].map(
  (digits) => new Intl.NumberFormat('en-US', { minimumFractionDigits: digits, maximumFractionDigits: digits }),
);
const SIGNIFICANT = new Intl.NumberFormat('en-US', { maximumSignificantDigits: 3 });

/** @typedef {number | null | undefined} Value */
/** @typedef {(number | string | null)[]} Step limit, factor, digits, and unit */

/**
 * @param {Value} value
 * @returns {value is number}
 */
const known = (value) => value !== null && value !== undefined && Number.isFinite(value);

/**
 * Return the value in the format of its step.
 * @param {Step[]} steps
 * @returns {(value: Value) => string}
 */
const stepped = (steps) => (value) => {
  if (!known(value)) return UNKNOWN;
  const size = Math.abs(value);
  const step = steps.find(([below]) => below === null || size < Number(below)) ?? steps[steps.length - 1];
  const [, factor, digits, unit] = step;
  if (factor === null) return String(unit);
  const number = size * Number(factor);
  // Intl rounds the shortest decimal text of a number, toFixed and Python its exact value.
  const words =
    digits === null
      ? SIGNIFICANT.format(number)
      : DIGITS[Number(digits)].format(Number(number.toFixed(Number(digits))));
  // Numbers that round to zero have no sign.
  return `${value < 0 && /[1-9]/.test(words) ? FORMATS.minus : ''}${words}${unit}`;
};

const { numbers } = FORMATS;
/** A count with three significant digits in base 1000: 640, 3.6k, 128k, 0.98M. */
export const short = stepped(numbers.short);
/** A whole number with commas for thousands. */
export const whole = stepped(numbers.whole);
/** A duration that a person set, without trailing zeros: 3.5 s, 5 s, 250 ms. */
export const setting = stepped(numbers.setting);
/** Seconds with one decimal, for a column of them. */
export const seconds = stepped(numbers.seconds);
/** A share 0..1 with its sign, 71.4 %. */
export const percentText = stepped(numbers.percent);
/** Events per second: 4.2, 118, 1,204. */
export const rate = stepped(numbers.rate);
/** A ratio or coefficient with two decimals. */
export const ratio = stepped(numbers.ratio);
/** A multiple: 25×, 1.8×. */
export const times = stepped(numbers.times);
const briefly = stepped(numbers.duration);

/**
 * A share 0..1 in percent with one decimal, without the sign.
 * @param {Value} share
 */
export function percent(share) {
  return percentText(share).split(NARROW)[0];
}

/**
 * A duration as one text: 48 µs, 84 ms, 2.31 s, 2 min 32 s.
 * @param {Value} length seconds
 */
export function duration(length) {
  const limit = Number(numbers.duration[numbers.duration.length - 1][0]);
  if (!known(length) || Math.abs(length) < limit) return briefly(length);
  return (length < 0 ? FORMATS.minus : '') + span(Math.abs(length));
}

/**
 * A time in at most two whole units.
 * @param {number} length seconds
 */
export function span(length) {
  let left = Math.max(0, Math.round(length));
  const first = FORMATS.units.findIndex(([size]) => left >= Number(size));
  const words = [];
  for (const [size, name] of FORMATS.units.slice(first, first + 2)) {
    const number = Math.floor(left / Number(size));
    left %= Number(size);
    if (number || !words.length) words.push(number + NARROW + name);
  }
  return words.join(' ');
}

/**
 * Two durations in the unit of the longer one: ['456', '991 ms'], ['0.65', '2.65 s'].
 * @param {number} shorter
 * @param {number} longer
 */
export function durationPair(shorter, longer) {
  const words = duration(longer);
  const unit = words.split(NARROW)[1];
  if (known(shorter) && unit === 'ms') return [DIGITS[0].format(shorter * 1000), words];
  return [known(shorter) && unit === 's' ? DIGITS[2].format(shorter) : duration(shorter), words];
}

/** @type {{ zone: string, hours: string, format: Intl.DateTimeFormat } | undefined} */
let onPage;

/** Zone and clock that the server has written into the page. */
function shownTimes() {
  const marked = globalThis.document?.documentElement.dataset;
  const zone = marked?.timeZone ?? 'UTC';
  const hours = marked?.clock ?? '24';
  if (onPage?.zone === zone && onPage.hours === hours) return onPage;
  /** @type {Intl.DateTimeFormatOptions} */
  const wanted = { month: 'short', day: 'numeric', hour: '2-digit', minute: '2-digit', second: '2-digit' };
  onPage = { zone, hours, format: new Intl.DateTimeFormat('en-US', { ...wanted, timeZone: zone, hourCycle: 'h23' }) };
  return onPage;
}

/** Name of the zone in which times are written, such as UTC or Europe/Berlin. */
export const zoneName = () => shownTimes().zone;

/**
 * Parts of unix seconds by their names.
 * @param {number} at
 */
const parts = (at) =>
  Object.fromEntries(
    shownTimes()
      .format.formatToParts(at * 1000)
      .map(({ type, value }) => [type, value]),
  );

/**
 * @param {Value} at
 * @param {boolean} [minutes] whether to leave out seconds
 */
function timeOfDay(at, minutes) {
  if (!known(at)) return UNKNOWN;
  const { hour, minute, second } = parts(at);
  const rest = minutes ? minute : `${minute}:${second}`;
  if (shownTimes().hours !== '12') return `${hour}:${rest}`;
  return `${Number(hour) % 12 || 12}:${rest}${NARROW}${Number(hour) < 12 ? 'am' : 'pm'}`;
}

/** Time of day of unix seconds, 03:13:18 or 3:13:18 am. @param {Value} at */
export const clock = (at) => timeOfDay(at);
/** Time of day to the minute, 03:13. @param {Value} at */
export const minuteClock = (at) => timeOfDay(at, true);
/** Day and time of day, 20 Nov 03:13. @param {Value} at */
export const dayClock = (at) => (known(at) ? `${parts(at).day} ${parts(at).month} ${minuteClock(at)}` : UNKNOWN);

/**
 * The text with the time of day in place of each time in ISO 8601.
 * @param {string} text
 */
export const withClocks = (text) =>
  text.replace(/\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00/g, (iso) => clock(Date.parse(iso) / 1000));

/**
 * Age in past ranges: 41 s, 12 min, 3 h 20 min, 5 d ago.
 * @param {Value} elapsed
 */
export function longAgo(elapsed) {
  if (!known(elapsed)) return UNKNOWN;
  return elapsed < 1 ? 'just now' : `${span(Math.floor(elapsed))} ago`;
}

/**
 * Age in whole seconds and then minutes; never negative.
 * @param {Value} elapsed
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
