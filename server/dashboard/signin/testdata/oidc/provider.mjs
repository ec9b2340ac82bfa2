// An OpenID Connect provider for tests: panva's certified oidc-provider with its own pages, where
// a login decides the roles. Arguments: the issuer, the address of the callback, and "thin" if ID
// tokens are to have no claims but the subject. It prints where it answers.
import Provider from 'oidc-provider';

const [issuer, callback, kind] = process.argv.slice(2);

const roles = {
  olive: ['Forebay.Operator'],
  victor: ['Forebay.Viewer', 'Unrelated'],
  sam: ['Forebay.Submit'],
  torn: ['Forebay.Viewer', 'Forebay.Elsewhere'],
  elsa: 'Forebay.Elsewhere',
};

const client = (id) => ({
  client_id: id, client_secret: `the secret of ${id}, which is long`, redirect_uris: [callback],
  grant_types: ['authorization_code'], response_types: ['code'],
});

const provider = new Provider(issuer, {
  clients: [client('forebay'), client('other'), client('hasty')],
  pkce: { required: () => true, methods: ['S256'] },
  claims: { openid: ['sub', 'roles'], profile: ['preferred_username'], email: ['email'] },
  conformIdTokenClaims: kind === 'thin',
  ttl: { IdToken: 600, AccessToken: 600, AuthorizationCode: 600, Interaction: 600, Session: 600, Grant: 600 },
  findAccount: (ctx, id) => ({
    accountId: id,
    claims: () => ({ sub: id, preferred_username: `${id.split('-')[0]}@example.com`, email: `${id}@example.com`, roles: roles[id.split('-')[0]] }),
  }),
});

// The tokens of one client are made half an hour ago, so that they have expired.
provider.use(async (ctx, next) => {
  const [name] = Buffer.from(ctx.get('authorization').split(' ')[1] ?? '', 'base64').toString().split(':');
  if (ctx.path !== '/token' || name !== 'hasty') return next();
  const { now } = Date;
  Date.now = () => now() - 1_800_000;
  try {
    await next();
  } finally {
    Date.now = now;
  }
});

const server = provider.listen(0, '127.0.0.1', () => {
  console.log(`http://127.0.0.1:${server.address().port}`);
});
