// Draws diagrams for the page around this one, which has no rights and sees nothing but their text.

const MOST_TEXT = 10_000; // characters of a diagram
const MOST_EDGES = 300;

let count = 0;
let before = Promise.resolve(); // one is drawn after the other

addEventListener("message", ({ data, source }) => {
  before = before.then(async () => {
    const svg = await drawn(data).catch(() => "");
    source.postMessage({ id: data.id, svg }, "*"); // which page this is shown in, it cannot know
  });
});
parent.postMessage({ ready: true }, "*");

/** A diagram as an image that stands by itself: XML with a size of its own. */
async function drawn({ text, theme }) {
  if (text.length > MOST_TEXT) return "";
  mermaid.initialize({
    startOnLoad: false,
    securityLevel: "strict",
    suppressErrorRendering: true,
    htmlLabels: false,
    flowchart: { htmlLabels: false },
    maxEdges: MOST_EDGES,
    theme,
  });
  const { svg } = await mermaid.render(`d${(count += 1)}`, text);
  const holder = document.createElement("div");
  holder.innerHTML = svg;
  const image = holder.querySelector("svg");
  const [, , width, height] = image.getAttribute("viewBox").split(" ").map(Number);
  image.setAttribute("width", Math.ceil(width));
  image.setAttribute("height", Math.ceil(height));
  return new XMLSerializer().serializeToString(image);
}
