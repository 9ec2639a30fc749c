// A rule that is being typed, as the sentence it comes to, or what is wrong with it.

const PAUSE = 250; // ms without a key before it is checked

const form = document.getElementById("add");
const said = document.getElementById("scope-said");
const path = form.getAttribute("action").replace(/add$/, "check");
let timer;
let latest = 0;

async function check() {
  const number = ++latest;
  const body = new URLSearchParams(new FormData(form));
  const answer = await fetch(path, { method: "POST", body }).catch(() => null);
  if (!answer?.ok || number !== latest) return;
  const { sentence, problem, hint } = await answer.json();
  said.className = problem ? "problem" : "";
  said.textContent = problem || [sentence, hint].filter(Boolean).join(" ");
}

form.addEventListener("input", () => {
  clearTimeout(timer);
  timer = setTimeout(check, PAUSE);
});
check();
