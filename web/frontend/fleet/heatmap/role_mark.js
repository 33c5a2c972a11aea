/* The role of an engine that only prefills or only decodes. */

/** @import { EngineFacts } from '../../live/frame_types.js' */

/** @type {Record<string, string>} */
const MARKS = { prefill: 'P', decode: 'D' };

/**
 * Return a letter for an engine that only prefills or only decodes; empty for others.
 * @param {EngineFacts | undefined} engine
 */
export const roleMark = (engine) => MARKS[engine?.role ?? ''] ?? '';

/**
 * Return the engine's name padded for its mark; undefined without an engine.
 * @param {EngineFacts | undefined} engine
 */
export const labelled = (engine) => (engine && roleMark(engine) ? `${engine.name} ${roleMark(engine)}` : engine?.name);
