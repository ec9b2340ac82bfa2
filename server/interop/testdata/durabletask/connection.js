// How to reach the server whose address and API key are given.
const grpc = require("@grpc/grpc-js");
const { NoOpLogger } = require("@microsoft/durabletask-js");

const [hostAddress, key] = process.argv.slice(2);

exports.options = {
  hostAddress,
  logger: new NoOpLogger(),
  metadataGenerator: async () => {
    const metadata = new grpc.Metadata();
    metadata.set("authorization", "Bearer " + key);
    return metadata;
  },
};
