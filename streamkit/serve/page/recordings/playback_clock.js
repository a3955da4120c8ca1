// The one clock of all cameras of the view: they show what it says, and it waits for those that still load.

export class PlaybackClock {
  /** @param {number} time_s seconds since 1970 */
  constructor(time_s) {
    this.base_s = time_s;
    this.base_ms = performance.now();
    this.speed = 1;
    this.playing = false;
    this.held = false; // a camera loads: none goes on without it
  }

  get time_s() {
    return this.base_s + ((performance.now() - this.base_ms) / 1000) * this.rate;
  }

  /** How fast it runs now. */
  get rate() {
    return this.playing && !this.held ? this.speed : 0;
  }

  /** @param {() => void} change of what the rate depends on */
  changing(change) {
    this.base_s = this.time_s;
    this.base_ms = performance.now();
    change();
  }

  /** @param {number} time_s */
  seek(time_s) {
    this.base_s = time_s;
    this.base_ms = performance.now();
  }

  /** @param {boolean} playing */
  play(playing) {
    this.changing(() => {
      this.playing = playing;
      this.held = false;
    });
  }

  /** @param {boolean} held */
  hold(held) {
    if (held !== this.held) this.changing(() => { this.held = held; });
  }

  /** @param {number} speed */
  setSpeed(speed) {
    this.changing(() => { this.speed = speed; });
  }
}
