showHead();
showTotals();
showReasons();
showTable();
showGraph();
showSchedules();
document.body.dataset.page = "ready";
