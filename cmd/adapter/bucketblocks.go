package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/go-kit/log"
	"github.com/go-kit/log/level"
	"github.com/oklog/ulid/v2"
	"github.com/thanos-io/objstore"

	"github.com/promtable/promtable/remote/history"
)

// The files of a block in object storage that are not its samples.
const (
	blockMeta = "meta.json"
	// deletionMark is there when a block is to be removed: another one has its samples, or they are not to be kept.
	deletionMark = "deletion-mark.json"
)

// blocks returns the blocks of an import.
func (o *options) blocks(ctx context.Context, sel history.Selection, logger log.Logger) (history.Source, error) {
	i := &o.imports
	var dirs []string
	files := &bucketBlocks{from: make(map[string]blockObjects)}
	for _, place := range i.dirs {
		if !isBucket(place) {
			dirs = append(dirs, place)
			continue
		}
		if files.dir == "" {
			var err error
			if files.dir, err = os.MkdirTemp(i.workDir, "import-blocks-"); err != nil {
				return nil, fmt.Errorf("--work-dir: %w", err)
			}
		}
		dir, err := o.openBlocks(ctx, place, files, logger)
		if err != nil {
			return nil, errors.Join(err, files.close())
		}
		dirs = append(dirs, dir)
	}
	if files.dir == "" {
		return history.NewBlocks(dirs, sel), nil
	}
	return bucketSource{history.NewRemoteBlocks(dirs, files, sel), files}, nil
}

// bucketSource is a source that has a directory of its own.
type bucketSource struct {
	*history.Blocks
	files *bucketBlocks
}

// Close implements history.Source.
func (s bucketSource) Close() error { return errors.Join(s.Blocks.Close(), s.files.close()) }

// bucketBlocks are the files of blocks in object storage. They are brought below dir.
type bucketBlocks struct {
	dir     string
	buckets []objstore.Bucket
	// from says where the block of a directory is.
	from map[string]blockObjects
}

type blockObjects struct {
	bucket objstore.Bucket
	prefix string
}

func (b *bucketBlocks) close() (err error) {
	for _, bucket := range b.buckets {
		err = errors.Join(err, bucket.Close())
	}
	return errors.Join(err, os.RemoveAll(b.dir))
}

// openBlocks brings meta.json of all blocks at a place to a directory, which it returns.
func (o *options) openBlocks(ctx context.Context, place string, files *bucketBlocks, logger log.Logger) (dir string, err error) {
	bucket, prefix, err := o.openObjects(place, logger)
	if err != nil {
		return "", err
	}
	files.buckets = append(files.buckets, bucket)
	if dir, err = os.MkdirTemp(files.dir, "place-"); err != nil {
		return "", err
	}
	add := func(prefix string) error {
		isMarked, err := bucket.Exists(ctx, path.Join(prefix, deletionMark))
		if err != nil {
			return err
		}
		if isMarked {
			level.Info(logger).Log("msg", "a block that is marked to be deleted is left out", "block", path.Base(prefix))
			return nil
		}
		block := filepath.Join(dir, path.Base(prefix))
		if err := os.Mkdir(block, 0o750); err != nil {
			return err
		}
		files.from[block] = blockObjects{bucket, prefix}
		err = fetchObject(ctx, bucket, path.Join(prefix, blockMeta), filepath.Join(block, blockMeta))
		if bucket.IsObjNotFoundErr(err) {
			return nil // it is not whole, which is said when it is read
		}
		return err
	}
	if _, err := ulid.ParseStrict(path.Base(prefix)); err == nil {
		err = add(prefix)
	} else {
		err = bucket.Iter(ctx, prefix, func(name string) error {
			name = strings.TrimSuffix(name, objstore.DirDelim)
			if _, err := ulid.ParseStrict(path.Base(name)); err != nil {
				return nil // what else Thanos and Mimir have there
			}
			return add(name)
		})
	}
	if err == nil && len(files.from) == 0 {
		err = errors.New("there are no blocks: for Mimir give the directory of a tenant")
	}
	if err != nil {
		return "", fmt.Errorf("%s: %w", place, err)
	}
	return dir, nil
}

// Fetch implements history.BlockFiles.
func (b *bucketBlocks) Fetch(ctx context.Context, dir string) error {
	from, ok := b.from[dir]
	if !ok {
		return nil // it is on the disk
	}
	return from.bucket.Iter(ctx, from.prefix, func(name string) error {
		local := strings.TrimPrefix(strings.TrimPrefix(name, from.prefix), objstore.DirDelim)
		if local == blockMeta {
			return nil
		}
		if !filepath.IsLocal(filepath.FromSlash(local)) {
			return fmt.Errorf("%s has an object %q", from.prefix, name)
		}
		to := filepath.Join(dir, filepath.FromSlash(local))
		if err := os.MkdirAll(filepath.Dir(to), 0o750); err != nil {
			return err
		}
		if err := fetchObject(ctx, from.bucket, name, to); err != nil {
			return fmt.Errorf("read %s: %w", name, err)
		}
		return nil
	}, objstore.WithRecursiveIter())
}

// Drop implements history.BlockFiles.
func (b *bucketBlocks) Drop(dir string) error {
	if _, ok := b.from[dir]; !ok {
		return nil
	}
	entries, err := os.ReadDir(dir)
	for _, entry := range entries {
		if entry.Name() != blockMeta {
			err = errors.Join(err, os.RemoveAll(filepath.Join(dir, entry.Name())))
		}
	}
	return err
}

// fetchObject copies an object to a file.
func fetchObject(ctx context.Context, bucket objstore.Bucket, name, to string) error {
	r, err := bucket.Get(ctx, name)
	if err != nil {
		return err
	}
	defer r.Close()
	content, err := os.Create(to)
	if err != nil {
		return err
	}
	_, err = io.Copy(content, r)
	if err = cmp.Or(err, content.Close()); err != nil { // one that stays as it is, see openBlocks
		_ = os.Remove(to)
	}
	return err
}
