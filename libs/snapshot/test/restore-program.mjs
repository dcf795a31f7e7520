// Restores `STORE STATE DIR` and prints what could not be: for a test that runs it as another user.
import { restore, Store } from '../dist/index.js';

const [dir, digest, into] = process.argv.slice(2);
const { gaps } = await restore(Store.open(dir), digest, into);
console.log(JSON.stringify(gaps.map(({ gap, paths }) => [gap, paths])));
