/* Types of the binary frames of web/live/frames.py; no code. */

/**
 * Texts of an engine, which change rarely.
 * @typedef {object} EngineFacts
 * @property {string} id
 * @property {string} name
 * @property {string} pool id of its pool
 * @property {number} incarnation
 * @property {string} state
 * @property {string} reason
 * @property {number} since unix seconds
 * @property {string} trust 'exact', 'degraded', 'blind' or '' for unknown
 * @property {string} trust_reason
 * @property {string} role 'prefill', 'decode', or another one for both
 * @property {boolean} [removed] no longer in the fleet at the end of the picture
 */

/**
 * Texts of a pool, which change with topology and policy.
 * @typedef {object} PoolFacts
 * @property {string} id
 * @property {string} name
 * @property {string} region
 * @property {string} served_model
 * @property {string} placement
 * @property {string} order
 * @property {string} admission
 * @property {number} policy_version
 * @property {number} ttft_slo_s
 * @property {number} tokens_per_s
 * @property {boolean} observes another router routes; Headway observes
 */

/**
 * A marked moment on the time axis.
 * @typedef {object} Annotation
 * @property {number} number
 * @property {number} at unix seconds
 * @property {string} kind
 * @property {string} label
 * @property {string} text
 * @property {string} pool_id
 * @property {string} engine_id
 * @property {number} replaces number of the marker that this one replaces
 */

/**
 * The server's sentence about the fleet.
 * @typedef {object} Verdict
 * @property {string} severity
 * @property {string} lead
 * @property {string} text
 * @property {string} engine_id
 * @property {string} [shape]
 * @property {string} [late_pool_id] the pool with late requests; '' for other subjects
 * @property {number} [late_since] unix seconds
 * @property {number} [incident] its number; 0: none
 * @property {string} [mark] figure for the tab's title while an incident is open
 */

/**
 * Fields of every head.
 * @typedef {object} CommonHead
 * @property {number} seq
 * @property {number | null} at unix seconds of the newest sample
 * @property {number} window_s
 * @property {number} snapshot_version
 * @property {number} strip_index
 * @property {Annotation[]} markers
 * @property {Verdict} verdict
 * @property {[pool: number, column: number, codes: Record<string, number>][]} rejections
 */

/**
 * @typedef {object} KeyframeOnly
 * @property {'keyframe'} kind
 * @property {number} protocol
 * @property {number} column_s
 * @property {number} columns
 * @property {number | null} index number of the newest column; null before the first sample
 * @property {number} strip_column_s
 * @property {number} strip_columns
 * @property {string[]} states
 * @property {EngineFacts[]} engines
 * @property {PoolFacts[]} pools
 * @property {string} [roster] digest of the engines; frames of the past have it
 */

/**
 * @typedef {object} ColumnOnly
 * @property {'column'} kind
 * @property {number} index
 * @property {[row: number, facts: EngineFacts][]} facts
 */

/**
 * @typedef {object} MoreOnly
 * @property {'more'} kind
 * @property {number} index
 * @property {number} columns
 * @property {number} strip_columns
 * @property {string} roster
 */

/** @typedef {CommonHead & KeyframeOnly} KeyframeHead */
/** @typedef {CommonHead & ColumnOnly} ColumnHead the newest column of the live feed */
/** @typedef {CommonHead & MoreOnly} MoreHead columns of the past after those that the page has */
/** @typedef {KeyframeHead | ColumnHead | MoreHead} Head */

/**
 * @template {Head} H
 * @typedef {object} FrameOf
 * @property {H} head
 * @property {Float32Array<ArrayBuffer>} now
 * @property {Record<string, Float32Array>} engineFloats
 * @property {Record<string, Float32Array>} poolFloats
 * @property {Float32Array<ArrayBuffer>} hour
 * @property {Record<string, Uint8Array>} engineBytes
 */

/** @typedef {FrameOf<KeyframeHead>} Keyframe */
/** @typedef {FrameOf<ColumnHead>} ColumnFrame */
/** @typedef {FrameOf<MoreHead>} MoreFrame */
/** @typedef {Keyframe | ColumnFrame | MoreFrame} Frame */

/**
 * What an engine's or pool's arrays must fit.
 * @typedef {object} Shape
 * @property {number} engines
 * @property {number} pools
 */

export {};
