// Prints the tokens that Microsoft's SDK for JavaScript puts on $cbs: NAME KEY AUDIENCE….
import { createRequire } from "node:module";
const { createSasTokenProvider } = createRequire(process.env.MODULES + "/")("@azure/core-amqp");
const [name, key, ...audiences] = process.argv.slice(2);
for (const audience of audiences) {
  const made = await createSasTokenProvider({ sharedAccessKeyName: name, sharedAccessKey: key }).getToken(audience);
  console.log(audience + "\t" + made.token);
}
