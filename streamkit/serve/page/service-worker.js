// Shows alerts that the server sends, also while the page is closed, and opens the page at the item.

const worker = /** @type {any} */ (self); // it has more than a page has

worker.addEventListener("push", (/** @type {any} */ event) => {
  const { title, body, url, tag, time_s } = event.data.json();
  event.waitUntil(worker.registration.showNotification(title, { body, tag, icon: "/page/icon.svg", timestamp: time_s * 1000, data: { url },
    requireInteraction: true }));
});

worker.addEventListener("notificationclick", (/** @type {any} */ event) => {
  event.notification.close();
  const address = new URL(event.notification.data.url, worker.location.origin).href;
  event.waitUntil(worker.clients.matchAll({ type: "window" }).then(async (/** @type {any[]} */ [page]) => {
    if (!page) return worker.clients.openWindow(address);
    await page.navigate(address);
    return page.focus();
  }));
});
