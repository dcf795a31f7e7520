import { createHash } from 'node:crypto';
import { Correlator, Framer, readFrame, ToolList, type Direction, type ToolFinding } from '@belay/mcp';
import { describe, expect, test } from 'vitest';

const digest = (definition: unknown): string =>
  createHash('sha256').update(JSON.stringify(definition)).digest('hex').slice(0, 8);
const tool = (name: string, description = 'd'): object => ({ name, description, inputSchema: {} });

/** One conversation; each step is a message, and gives what was found odd. */
function conversation() {
  const list = new ToolList(digest);
  const correlator = new Correlator();
  let id = 0;
  const step = (direction: Direction, message: object): readonly ToolFinding[] => {
    const found: ToolFinding[] = [];
    new Framer().push(Buffer.from(`${JSON.stringify({ jsonrpc: '2.0', ...message })}\n`), (frame) => {
      for (const each of readFrame(frame).messages) {
        found.push(...list.observe(direction, correlator.observe(direction, each)));
      }
    });
    return found;
  };
  return {
    list,
    step,
    page: (tools: unknown[], { cursor, nextCursor }: { cursor?: string; nextCursor?: string } = {}) => {
      step('c2s', { id: ++id, method: 'tools/list', params: { cursor } });
      return step('s2c', { id, result: { tools, nextCursor } });
    },
    changed: () => step('s2c', { method: 'notifications/tools/list_changed' }),
    call: (name: string) => step('c2s', { id: ++id, method: 'tools/call', params: { name } }),
  };
}

describe('case 16: tools/list and list_changed', () => {
  test('before a list nothing is known, and nothing is odd', () => {
    const { list, call } = conversation();
    expect(call('a')).toEqual([]);
    expect(list.definition('a')).toBeUndefined();
  });

  test('pages are one list', () => {
    const { list, page, call } = conversation();
    expect(page([tool('a')], { nextCursor: '1' })).toEqual([]);
    expect(list.definition('a')).toBe(digest(tool('a')));
    expect(call('c')).toEqual([]);
    expect(page([tool('b')], { cursor: '1', nextCursor: '2' })).toEqual([]);
    expect(page([tool('c')], { cursor: '2' })).toEqual([]);
    expect(['a', 'b', 'c'].map((name) => list.definition(name))).toEqual(
      ['a', 'b', 'c'].map((name) => digest(tool(name))),
    );
    expect(call('c')).toEqual([]);
    expect(call('d')).toEqual(['TOOL_NOT_LISTED']);
  });

  test('the same list again, in pages or not, is no change', () => {
    const { page } = conversation();
    page([tool('a'), tool('b')]);
    expect(page([tool('b'), tool('a')])).toEqual([]);
    expect(page([tool('b')], { nextCursor: 'x' })).toEqual([]);
    expect(page([tool('a')], { cursor: 'x' })).toEqual([]);
  });

  test('a definition that changed is named, and that nobody said so', () => {
    const { list, page, changed } = conversation();
    page([tool('a')]);
    expect(page([tool('a', 'now deletes')])).toEqual(['TOOL_CHANGED', 'TOOLS_CHANGED_UNANNOUNCED']);
    expect(list.definition('a')).toBe(digest(tool('a', 'now deletes')));
    changed();
    expect(page([tool('a', 'once more')])).toEqual(['TOOL_CHANGED']);
    expect(page([])).toEqual(['TOOLS_CHANGED_UNANNOUNCED']);
    expect(page([tool('b')])).toEqual(['TOOLS_CHANGED_UNANNOUNCED']);
  });

  test('after list_changed calls are of a stale list until it was read again, to its end', () => {
    const { page, changed, call } = conversation();
    page([tool('a')]);
    expect(call('a')).toEqual([]);
    changed();
    expect(call('a')).toEqual(['TOOL_LIST_STALE']);
    page([tool('a')], { nextCursor: '1' });
    expect(call('a')).toEqual(['TOOL_LIST_STALE']);
    page([tool('b')], { cursor: '1' });
    expect(call('a')).toEqual([]);
  });

  test('a list_changed between its pages leaves it stale', () => {
    const { page, changed, call } = conversation();
    page([tool('a')], { nextCursor: '1' });
    changed();
    page([tool('b')], { cursor: '1' });
    expect(call('a')).toEqual(['TOOL_LIST_STALE']);
  });

  test('a name that stands there twice', () => {
    const { page } = conversation();
    expect(page([tool('a'), tool('a', 'other')])).toContain('TOOL_NAME_TWICE');
  });

  test('what is no list harms nothing', () => {
    const { step, page, call } = conversation();
    page([tool('a')]);
    for (const tools of [undefined, null, 5, {}, [null, 5, 'a', {}, { name: 5 }]]) {
      step('c2s', { id: 'x', method: 'tools/list', params: null });
      step('s2c', { id: 'x', result: { tools } });
    }
    step('c2s', { id: 'x', method: 'tools/list' });
    expect(step('s2c', { id: 'x', error: { code: -32601 } })).toEqual([]);
    expect(step('s2c', { id: 'never asked', result: { tools: [] } })).toEqual([]);
    expect(call('a')).toEqual(['TOOL_NOT_LISTED']);
  });
});
