// The log of a process: stay at its end while lines come in, and keep only so many of them.
"use strict";
(() => {
  const box = document.getElementById("log-box");
  if (!box) return;
  const lines = document.getElementById("log-lines");
  const button = document.getElementById("follow");
  const maxLines = 3000;
  let atEnd = true;

  function scrollToEnd() { box.scrollTop = box.scrollHeight; }
  box.addEventListener("scroll", () => {
    atEnd = box.scrollHeight - box.scrollTop - box.clientHeight < 40;
    button.hidden = atEnd;
  });
  box.addEventListener("rekindle:updated", () => {
    for (let surplus = lines.childElementCount - maxLines; surplus > 0; surplus--) lines.firstElementChild.remove();
    if (atEnd) scrollToEnd();
  });
  button.addEventListener("click", () => { atEnd = true; scrollToEnd(); });
  scrollToEnd();

  // A line is sent without loading the page again.
  const form = document.getElementById("send");
  form?.addEventListener("submit", async (event) => {
    event.preventDefault();
    const fields = new FormData(form, event.submitter);
    try {
      const answer = await window.rekindle.send(form.action, fields);
      if (!answer.ok) throw new Error("It did not take the input.");
      form.reset();
      atEnd = true;
    } catch (error) { window.rekindle.say(error.message); }
  });
})();
