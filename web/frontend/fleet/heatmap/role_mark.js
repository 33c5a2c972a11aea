/* What of prefill and decode an engine does, where it does not do both. */

/** @import { EngineFacts } from '../../live/frame_types.js' */

/** @type {Record<string, string>} */
const MARKS = { prefill: 'P', decode: 'D' };

/**
 * A letter for an engine that only prefills or only decodes; empty for all others.
 * @param {EngineFacts | undefined} engine
 */
export const roleMark = (engine) => MARKS[engine?.role ?? ''] ?? '';

/**
 * The engine's name as wide as it is shown; undefined without an engine.
 * @param {EngineFacts | undefined} engine
 */
export const labelled = (engine) => (engine && roleMark(engine) ? `${engine.name} ${roleMark(engine)}` : engine?.name);
