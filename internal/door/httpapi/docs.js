
"use strict";
const find = document.getElementById("find"), none = document.getElementById("none");
const calls = [...document.querySelectorAll("nav li[data-id]")].map(li => ({ li, section: document.getElementById(li.dataset.id) }));
for (const c of calls) c.text = c.section.textContent.toLowerCase() + " " + c.li.dataset.id.toLowerCase();
find.addEventListener("input", () => {
  const words = find.value.toLowerCase().split(/\s+/).filter(Boolean);
  let any = false;
  for (const c of calls) {
    const hit = words.every(w => c.text.includes(w));
    c.li.hidden = c.section.hidden = !hit;
    any ||= hit;
  }
  for (const d of document.querySelectorAll("nav details")) {
    d.hidden = ![...d.querySelectorAll("li")].some(li => !li.hidden);
    d.open = words.length > 0 && !d.hidden;
  }
  for (const h of document.querySelectorAll("h2[id^=tag-]")) {
    let hit = false;
    for (let e = h.nextElementSibling; e && e.tagName === "SECTION"; e = e.nextElementSibling) hit ||= !e.hidden;
    h.hidden = !hit;
  }
  none.hidden = any;
});
document.addEventListener("keydown", e => {
  if (e.key === "/" && document.activeElement !== find) { e.preventDefault(); find.focus(); find.select(); }
  if (e.key === "Escape" && document.activeElement === find) { find.value = ""; find.dispatchEvent(new Event("input")); find.blur(); }
});
if (location.protocol.startsWith("http")) document.getElementById("origin").textContent = location.origin;
const reveal = () => {
  const call = location.hash && calls.find(c => c.section.id === location.hash.slice(1));
  if (call) call.li.closest("details").open = true;
};
addEventListener("hashchange", reveal);
reveal();
