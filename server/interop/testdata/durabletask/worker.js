// A worker that says of each activity that it has begun, and ends it unless it is told to "stall".
const { TaskHubGrpcWorker, whenAll } = require("@microsoft/durabletask-js");
const { options } = require("./connection.js");

const stalls = process.argv[4] === "stall";

const square = async (_, n) => {
  console.log("begun " + n);
  return stalls ? new Promise(() => {}) : n * n;
};
async function* squares(ctx, n) {
  return yield whenAll([...Array(n).keys()].map((i) => ctx.callActivity(square, i)));
}

const worker = new TaskHubGrpcWorker(options);
worker.addOrchestrator(squares);
worker.addActivity(square);
worker.start().catch((err) => {
  console.error(err);
  process.exit(1);
});
setInterval(() => {}, 1000); // it stays until it is killed
