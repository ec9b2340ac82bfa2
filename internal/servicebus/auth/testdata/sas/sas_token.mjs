// Prints the token that Microsoft's SDK for JavaScript puts on $cbs: NAME KEY AUDIENCE.
import { createRequire } from "node:module";
const { createSasTokenProvider } = createRequire(process.env.MODULES + "/")("@azure/core-amqp");
const [name, key, audience] = process.argv.slice(2);
const made = await createSasTokenProvider({ sharedAccessKeyName: name, sharedAccessKey: key }).getToken(audience);
console.log(made.token);
