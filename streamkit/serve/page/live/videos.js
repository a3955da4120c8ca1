// The videos of all players of the page, from one WebSocket: a message has what came of all of them in a moment.

const AGAIN_MS = 1000, SLOWEST_MS = 15000;

/** @typedef {{ from_s: number, offset_s: number }} Offset */
/** @typedef {{ start?: { mime: string, offset_s: number | null }, offset?: Offset, error?: string }} Told */
/** @typedef {{ told: (message: Told) => void, take: (data: Uint8Array) => void, away: (opened: boolean) => void }} Receiver */

export class Videos {
  constructor() {
    /** @type {Map<string, Receiver>} */
    this.receivers = new Map();
    /** @type {WebSocket | null} */
    this.socket = null;
    this.asked = "";
    this.wait_ms = AGAIN_MS;
    this.due = false;
  }

  /**
   * Receive the video of a source until `drop`. To begin it again, drop it for a moment.
   * @param {string} id
   * @param {Receiver} receiver
   */
  want(id, receiver) {
    this.receivers.set(id, receiver);
    this.ask();
  }

  /** @param {string} id */
  drop(id) {
    if (this.receivers.delete(id)) this.ask();
  }

  // Tells the server which videos are wanted, once for all that change together.
  ask() {
    if (this.due) return;
    this.due = true;
    queueMicrotask(() => {
      this.due = false;
      const { socket } = this;
      const asked = JSON.stringify({ sources: [...this.receivers.keys()] });
      if (!socket) this.connect();
      else if (socket.readyState === WebSocket.OPEN && asked !== this.asked) socket.send(this.asked = asked);
    });
  }

  connect() {
    clearTimeout(this.again);
    if (this.closed || this.receivers.size === 0) return;
    const socket = this.socket = new WebSocket(new URL("/api/v1/videos", location.href.replace("http", "ws")));
    let opened = false;
    socket.binaryType = "arraybuffer";
    socket.onopen = () => {
      opened = true;
      this.wait_ms = AGAIN_MS;
      this.asked = "";
      this.ask();
    };
    socket.onmessage = ({ data }) => {
      if (typeof data === "string") for (const one of JSON.parse(data)) this.receivers.get(one.source)?.told(one);
      else this.share(data);
    };
    socket.onclose = () => {
      if (this.closed) return;
      for (const one of [...this.receivers.values()]) one.away(opened);
      this.again = setTimeout(() => {
        this.socket = null;
        this.connect();
      }, this.wait_ms);
      this.wait_ms = Math.min(SLOWEST_MS, 2 * this.wait_ms);
    };
  }

  // Four bytes of length, the sources with the number of their bytes, and these bytes one after the other.
  /** @param {ArrayBuffer} data */
  share(data) {
    const length = new DataView(data).getUint32(0);
    let at = 4 + length;
    for (const [id, size] of JSON.parse(new TextDecoder().decode(new Uint8Array(data, 4, length)))) {
      this.receivers.get(id)?.take(new Uint8Array(data, at, size));
      at += size;
    }
  }

  close() {
    this.closed = true;
    clearTimeout(this.again);
    this.socket?.close();
  }
}
