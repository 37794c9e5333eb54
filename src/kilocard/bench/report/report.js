// The words of the nearest point, at once: the browser's own <title> comes after a second. Without this file they still come.
(() => {
  const tip = document.body.appendChild(Object.assign(document.createElement("div"), { id: "tip" }));
  for (const svg of document.querySelectorAll("svg")) {
    const circles = [...svg.querySelectorAll("circle")].flatMap((circle) => {
      const title = circle.querySelector("title");
      if (!title) return [];
      const words = title.textContent;
      title.remove();
      circle.setAttribute("aria-label", words);
      return [{ circle, words }];
    });
    if (!circles.length) continue;
    svg.addEventListener("mousemove", (event) => {
      let best = null, distance = 900;
      for (const { circle, words } of circles) {
        const box = circle.getBoundingClientRect();
        const across = event.clientX - box.x - box.width / 2, down = event.clientY - box.y - box.height / 2;
        const squared = across * across + down * down;
        if (squared < distance) [best, distance] = [words, squared];
      }
      tip.style.display = best ? "block" : "none";
      if (!best) return;
      tip.textContent = best;
      const right = event.clientX + 14 + tip.offsetWidth > innerWidth;
      tip.style.left = (right ? event.clientX - 14 - tip.offsetWidth : event.clientX + 14) + "px";
      tip.style.top = event.clientY + 14 + "px";
    });
    svg.addEventListener("mouseleave", () => (tip.style.display = "none"));
  }
})();
