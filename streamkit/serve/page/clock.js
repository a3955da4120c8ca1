// The server's clock: "the last hour" is the server's, however the clock of this machine is set.

let ahead_s = 0;

/** @param {number} server_s the server's time in seconds since 1970 */
export function setClock(server_s) {
  ahead_s = server_s - Date.now() / 1000;
}

/** The server's time in seconds since 1970. */
export const now_s = () => Date.now() / 1000 + ahead_s;
