// Command go-reader reads a log the way any stranger would: it opens the checkpoint with the log's verifier
// key, and proves every entry, and an older tree, against it. The signature is checked by golang.org/x/mod's
// sumdb/note and the proofs by its sumdb/tlog; none of the code is ours but the C2SP tile paths.
//
//	go-reader [-auth HEADER] [-old FILE] BASE-URL VKEY
//
// BASE-URL is where /checkpoint and /tile/ are. HEADER is the value of an Authorization header. FILE holds a
// checkpoint of the same log seen earlier. On success it prints one JSON object and exits 0; otherwise it says
// what does not hold and exits 1.
package main

import (
	"encoding/base64"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

const (
	tileHeight = 8
	tileWidth  = 1 << tileHeight
	// A full entry bundle of the largest entries.
	maxBody = tileWidth * (2 + 65535)
)

type reader struct {
	base  string
	auth  string
	http  *http.Client
	cache map[string][]byte
	gets  int
}

func (r *reader) get(path string) ([]byte, error) {
	if body, ok := r.cache[path]; ok {
		return body, nil
	}
	request, err := http.NewRequest("GET", r.base+path, nil)
	if err != nil {
		return nil, err
	}
	if r.auth != "" {
		request.Header.Set("Authorization", r.auth)
	}
	response, err := r.http.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	r.gets++
	body, err := io.ReadAll(io.LimitReader(response.Body, maxBody+1))
	if err != nil {
		return nil, err
	}
	if response.StatusCode != 200 {
		return nil, fmt.Errorf("GET %s: %s", path, response.Status)
	}
	if len(body) > maxBody {
		return nil, fmt.Errorf("GET %s: too large", path)
	}
	r.cache[path] = body
	return body, nil
}

// number writes a tile number in groups of three digits, and its width when it is not full.
func number(n int64, width int) string {
	text := fmt.Sprintf("%03d", n%1000)
	for n >= 1000 {
		n /= 1000
		text = fmt.Sprintf("x%03d/%s", n%1000, text)
	}
	if width != tileWidth {
		text += fmt.Sprintf(".p/%d", width)
	}
	return text
}

// Height, ReadTiles and SaveTiles make reader a tlog.TileReader over C2SP paths, which have no height in them.
func (r *reader) Height() int { return tileHeight }

func (r *reader) ReadTiles(tiles []tlog.Tile) ([][]byte, error) {
	data := make([][]byte, len(tiles))
	for i, t := range tiles {
		body, err := r.get(fmt.Sprintf("/tile/%d/%s", t.L, number(t.N, t.W)))
		if err != nil {
			return nil, err
		}
		if len(body) != t.W*tlog.HashSize {
			return nil, fmt.Errorf("tile %s has %d bytes", t.Path(), len(body))
		}
		data[i] = body
	}
	return data, nil
}

func (r *reader) SaveTiles([]tlog.Tile, [][]byte) {}

// entries returns the entries of bundle n.
func (r *reader) entries(n int64, width int) ([][]byte, error) {
	body, err := r.get("/tile/entries/" + number(n, width))
	if err != nil {
		return nil, err
	}
	var all [][]byte
	for len(body) > 0 {
		if len(body) < 2 {
			return nil, fmt.Errorf("entry bundle %d ends inside a length", n)
		}
		length := int(body[0])<<8 | int(body[1])
		if len(body) < 2+length {
			return nil, fmt.Errorf("entry bundle %d ends inside an entry", n)
		}
		all = append(all, body[2:2+length])
		body = body[2+length:]
	}
	if len(all) != width {
		return nil, fmt.Errorf("entry bundle %d has %d entries, not %d", n, len(all), width)
	}
	return all, nil
}

// open verifies a checkpoint and returns its tree.
func open(text []byte, vkey string) (tlog.Tree, string, error) {
	verifier, err := note.NewVerifier(vkey)
	if err != nil {
		return tlog.Tree{}, "", err
	}
	opened, err := note.Open(text, note.VerifierList(verifier))
	if err != nil {
		return tlog.Tree{}, "", err
	}
	lines := strings.Split(opened.Text, "\n")
	if len(lines) < 4 {
		return tlog.Tree{}, "", fmt.Errorf("not a checkpoint: %q", opened.Text)
	}
	if lines[0] != verifier.Name() {
		return tlog.Tree{}, "", fmt.Errorf("a checkpoint of %q signed by %q", lines[0], verifier.Name())
	}
	size, err := strconv.ParseInt(lines[1], 10, 64)
	if err != nil || size < 0 || strconv.FormatInt(size, 10) != lines[1] {
		return tlog.Tree{}, "", fmt.Errorf("size %q", lines[1])
	}
	root, err := base64.StdEncoding.Strict().DecodeString(lines[2])
	if err != nil || len(root) != tlog.HashSize {
		return tlog.Tree{}, "", fmt.Errorf("root %q", lines[2])
	}
	tree := tlog.Tree{N: size}
	copy(tree.Hash[:], root)
	return tree, lines[0], nil
}

type report struct {
	Origin     string  `json:"origin"`
	Size       int64   `json:"size"`
	Root       string  `json:"root"`
	Included   int64   `json:"included"`
	Consistent []int64 `json:"consistent"`
	Gets       int     `json:"gets"`
}

func run(r *reader, vkey, oldFile string) (*report, error) {
	text, err := r.get("/checkpoint")
	if err != nil {
		return nil, err
	}
	tree, origin, err := open(text, vkey)
	if err != nil {
		return nil, fmt.Errorf("checkpoint: %w", err)
	}
	result := &report{Origin: origin, Size: tree.N, Root: tree.Hash.String(), Consistent: []int64{}}
	if tree.N == 0 {
		return result, nil
	}
	hashes := tlog.TileHashReader(tree, r)

	for n := int64(0); n*tileWidth < tree.N; n++ {
		width := tileWidth
		if rest := tree.N - n*tileWidth; rest < tileWidth {
			width = int(rest)
		}
		entries, err := r.entries(n, width)
		if err != nil {
			return nil, err
		}
		for i, entry := range entries {
			index := n*tileWidth + int64(i)
			proof, err := tlog.ProveRecord(tree.N, index, hashes)
			if err != nil {
				return nil, fmt.Errorf("entry %d: %w", index, err)
			}
			if err := tlog.CheckRecord(proof, tree.N, tree.Hash, index, tlog.RecordHash(entry)); err != nil {
				return nil, fmt.Errorf("entry %d: %w", index, err)
			}
			result.Included++
		}
	}

	prove := func(size int64, root tlog.Hash) error {
		proof, err := tlog.ProveTree(tree.N, size, hashes)
		if err != nil {
			return err
		}
		if err := tlog.CheckTree(proof, tree.N, tree.Hash, size, root); err != nil {
			return err
		}
		result.Consistent = append(result.Consistent, size)
		return nil
	}
	if oldFile != "" {
		text, err := os.ReadFile(oldFile)
		if err != nil {
			return nil, err
		}
		old, _, err := open(text, vkey)
		if err != nil {
			return nil, fmt.Errorf("old checkpoint: %w", err)
		}
		if old.N > tree.N {
			return nil, fmt.Errorf("the log has shrunk from %d to %d", old.N, tree.N)
		}
		if old.N > 0 {
			if err := prove(old.N, old.Hash); err != nil {
				return nil, fmt.Errorf("old checkpoint at %d: %w", old.N, err)
			}
		}
	} else if half := tree.N / 2; half > 0 {
		// No earlier checkpoint to hand: the tree of half the entries, hashed from the entries themselves.
		var stored []tlog.Hash
		byIndex := tlog.HashReaderFunc(func(indexes []int64) ([]tlog.Hash, error) {
			list := make([]tlog.Hash, len(indexes))
			for i, x := range indexes {
				list[i] = stored[x]
			}
			return list, nil
		})
		for index := int64(0); index < half; index++ {
			n, width := index/tileWidth, tileWidth
			if rest := tree.N - n*tileWidth; rest < tileWidth {
				width = int(rest)
			}
			entries, err := r.entries(n, width)
			if err != nil {
				return nil, err
			}
			more, err := tlog.StoredHashes(index, entries[index%tileWidth], byIndex)
			if err != nil {
				return nil, err
			}
			stored = append(stored, more...)
		}
		root, err := tlog.TreeHash(half, byIndex)
		if err != nil {
			return nil, err
		}
		if err := prove(half, root); err != nil {
			return nil, fmt.Errorf("tree of the first %d: %w", half, err)
		}
	}
	result.Gets = r.gets
	return result, nil
}

func main() {
	auth := flag.String("auth", "", "value of the Authorization header")
	old := flag.String("old", "", "file with an earlier checkpoint of the log")
	flag.Parse()
	if flag.NArg() != 2 {
		fmt.Fprintln(os.Stderr, "usage: go-reader [-auth HEADER] [-old FILE] BASE-URL VKEY")
		os.Exit(64)
	}
	r := &reader{
		base:  strings.TrimSuffix(flag.Arg(0), "/"),
		auth:  *auth,
		http:  &http.Client{Timeout: 30 * time.Second},
		cache: map[string][]byte{},
	}
	result, err := run(r, flag.Arg(1), *old)
	if err != nil {
		fmt.Fprintln(os.Stderr, "go-reader:", err)
		os.Exit(1)
	}
	json.NewEncoder(os.Stdout).Encode(result)
}
