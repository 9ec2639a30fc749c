// Installs the page: its worker, which lets it open without the bot, and a button for the system.

import { root } from "./root.js";

const button = document.getElementById("install");

/** The page's worker; nothing where the browser has none, as on plain http from elsewhere. */
export const worker =
  "serviceWorker" in navigator
    ? navigator.serviceWorker.register(`${root}/sw.js`).catch(() => null)
    : Promise.resolve(null);

window.addEventListener("beforeinstallprompt", (event) => {
  event.preventDefault(); // it is asked for by the button, when somebody wants it
  button.hidden = false;
  button.onclick = async () => {
    button.hidden = true;
    await event.prompt();
  };
});

window.addEventListener("appinstalled", () => {
  button.hidden = true;
});
