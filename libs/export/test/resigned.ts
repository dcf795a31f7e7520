export { resigned } from '@belay/testkit/export';
