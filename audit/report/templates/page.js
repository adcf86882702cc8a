"use strict";
(function () {
  var root = document.documentElement;
  root.classList.add("scripted");
  var choice = document.getElementById("show");
  var rows = document.querySelectorAll(".matrix tr[data-verdicts]");
  if (choice) {
    choice.addEventListener("change", function () {
      rows.forEach(function (row) {
        var words = row.getAttribute("data-verdicts").split(" ");
        row.classList.toggle("hidden", choice.value !== "" && words.indexOf(choice.value) < 0);
      });
      document.getElementById("shown").textContent =
        document.querySelectorAll(".matrix tr[data-verdicts]:not(.hidden)").length + " of " + rows.length + " conditions";
    });
  }
  var fold = document.getElementById("fold");
  if (fold) {
    fold.addEventListener("click", function () {
      var open = fold.getAttribute("aria-pressed") !== "true";
      fold.setAttribute("aria-pressed", String(open));
      document.querySelectorAll("#witnesses details").forEach(function (one) { one.open = open; });
    });
  }
})();
