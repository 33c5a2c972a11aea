/* A custom element with one canvas whose backing store matches the device pixels. */

import { redraw } from './redraw_loop.js';

const sizes = new ResizeObserver((entries) => {
  for (const entry of entries) {
    if (!(entry.target instanceof Picture)) continue;
    const exact = entry.devicePixelContentBoxSize?.[0];
    const box = entry.contentBoxSize[0];
    const ratio = devicePixelRatio || 1;
    entry.target.resized(
      Math.round(exact ? exact.inlineSize : box.inlineSize * ratio),
      Math.round(exact ? exact.blockSize : box.blockSize * ratio),
      ratio,
    );
  }
});

/**
 * Return the 2D context of a canvas; every supported browser has one.
 * @param {HTMLCanvasElement} canvas
 */
export function penOf(canvas) {
  const pen = canvas.getContext('2d');
  if (!pen) throw new Error('this browser draws no pictures');
  return pen;
}

/** Subclasses implement paint(); it draws in device pixels: this.context, this.width, this.height, this.ratio. */
export class Picture extends HTMLElement {
  canvas = document.createElement('canvas');
  context = penOf(this.canvas);
  width = 0;
  height = 0;
  ratio = 1;

  connectedCallback() {
    this.canvas.setAttribute('aria-hidden', 'true');
    if (this.canvas.parentElement !== this) this.append(this.canvas);
    try {
      sizes.observe(this, { box: 'device-pixel-content-box' });
    } catch {
      // Safari reports only the content box; rounding it is at most half a pixel off.
      sizes.observe(this);
    }
  }

  disconnectedCallback() {
    sizes.unobserve(this);
  }

  /**
   * Handle a resize; subclasses that need more than a new store override it.
   * @param {number} width
   * @param {number} height
   * @param {number} ratio
   */
  resized(width, height, ratio) {
    if (width === this.width && height === this.height && ratio === this.ratio) return;
    this.width = this.canvas.width = width;
    this.height = this.canvas.height = height;
    this.ratio = ratio;
    this.invalidate();
  }

  invalidate() {
    redraw(this);
  }

  /** Draw everything again. */
  paint() {}
}

/**
 * Return the left edge of a column of `columns` on a canvas `width` device pixels wide; whole pixels.
 * @param {number} column
 * @param {number} columns
 * @param {number} width
 */
export function columnEdge(column, columns, width) {
  return Math.round((column * width) / columns);
}
