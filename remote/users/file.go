package users

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"go.yaml.in/yaml/v2"

	"github.com/promtable/promtable/bucketstore/metricset"
	"github.com/promtable/promtable/series"
)

// minToken is how many bytes a token in a file has at least: its hash is a fast one, which protects only what cannot be guessed.
const minToken = 32

// A table is what a file says.
type table struct {
	byName map[string]*User
	// byToken has the users by the SHA-256 of their tokens: how long a lookup takes tells nothing of a token.
	byToken map[[sha256.Size]byte]*User
}

// A File is a file of users. It is safe for concurrent use.
type File struct {
	path    string
	tenancy bool
	good    prometheus.Gauge
	now     atomic.Pointer[table]
}

// Open reads a file of users. tenancy says that the store has tenants: then each user needs some.
func Open(path string, tenancy bool, reg prometheus.Registerer) (*File, error) {
	f := &File{path: path, tenancy: tenancy}
	f.good = metricset.New(reg).Gauge("adapter_users_file_last_reload_successful",
		"1 if the users in force are those that --web.users-file had when it was last to be read, 0 if it could not be read.")
	return f, f.Reload()
}

// Reload reads the file again, and the files of tokens that it names. After an error the users before stay in force. The error names the
// file and the user.
func (f *File) Reload() error {
	read, err := f.read()
	if err != nil {
		f.good.Set(0)
		return fmt.Errorf("file %s: %w", f.path, err)
	}
	f.now.Store(read)
	f.good.Set(1)
	return nil
}

// ByName returns the user of a name, or nil.
func (f *File) ByName(name string) *User { return f.now.Load().byName[name] }

// ByToken returns the user of a token, or nil.
func (f *File) ByToken(token string) *User { return f.now.Load().byToken[sha256.Sum256([]byte(token))] }

// Len returns how many users there are.
func (f *File) Len() int { return len(f.now.Load().byName) }

// An entry is a user in a file.
type entry struct {
	Roles   []Role   `yaml:"roles"`
	Tenants []string `yaml:"tenants"`
	// TokensSHA256 are in hex. TokenFile is relative to the directory of the file of users.
	TokensSHA256 []string `yaml:"tokens_sha256"`
	TokenFile    string   `yaml:"token_file"`
}

func (f *File) read() (*table, error) {
	text, err := os.ReadFile(f.path)
	if err != nil {
		return nil, err
	}
	var file struct {
		Users map[string]*entry `yaml:"users"`
	}
	if err := yaml.UnmarshalStrict(text, &file); err != nil {
		return nil, err
	}
	if len(file.Users) == 0 {
		return nil, errors.New("it has no users: give it some, or leave the flag out")
	}
	t := &table{make(map[string]*User), make(map[[sha256.Size]byte]*User)}
	for name, e := range file.Users {
		if err := f.add(t, name, e); err != nil {
			return nil, fmt.Errorf("user %q: %w", name, err)
		}
	}
	return t, nil
}

// add puts a user into a table.
func (f *File) add(t *table, name string, e *entry) error {
	switch {
	case name == "":
		return errors.New("the name is empty")
	case e == nil || len(e.Roles) == 0:
		return fmt.Errorf("it has no roles: give it roles: [%s], %s or %s", Read, Write, Admin)
	case f.tenancy && len(e.Tenants) == 0:
		return errors.New("it has no tenants: name some, or all by tenants: ['*']")
	case !f.tenancy && len(e.Tenants) > 0:
		return errors.New("tenants are for a store that has them: add --tenancy, or leave them out")
	}
	for _, role := range e.Roles {
		if !slices.Contains([]Role{Read, Write, Admin}, role) {
			return fmt.Errorf("there is no role %q: there are %s, %s and %s", role, Read, Write, Admin)
		}
	}
	for _, tenant := range e.Tenants {
		if tenant == allTenants {
			continue
		}
		if err := series.CheckTenant(tenant); err != nil {
			return fmt.Errorf("tenants: %w", err)
		}
	}
	u := &User{Name: name, Roles: e.Roles, Tenants: e.Tenants}
	t.byName[name] = u
	hashes, err := f.hashes(e)
	if err != nil {
		return err
	}
	for _, hash := range hashes {
		if other := t.byToken[hash]; other != nil {
			return fmt.Errorf("it has a token twice, or one of the user %q", other.Name)
		}
		t.byToken[hash] = u
	}
	return nil
}

// hashes returns the SHA-256 of the tokens of a user.
func (f *File) hashes(e *entry) (all [][sha256.Size]byte, err error) {
	for _, text := range e.TokensSHA256 {
		hash, err := hex.DecodeString(text)
		if err != nil || len(hash) != sha256.Size {
			return nil, fmt.Errorf("tokens_sha256: %q is no SHA-256 in hex", text)
		}
		all = append(all, [sha256.Size]byte(hash))
	}
	if e.TokenFile == "" {
		return all, nil
	}
	path := e.TokenFile
	if !filepath.IsAbs(path) {
		path = filepath.Join(filepath.Dir(f.path), path)
	}
	tokens, err := readTokens(path)
	for _, token := range tokens {
		all = append(all, sha256.Sum256(token))
	}
	return all, err
}

// readTokens returns the tokens of a file, one in each line.
func readTokens(path string) (tokens [][]byte, err error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("token_file: %w", err)
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 {
		return nil, fmt.Errorf("token_file: others may read or write %s, which has mode %#o: chmod 600 it", path, mode)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("token_file: %w", err)
	}
	for i, line := range bytes.Split(text, []byte("\n")) {
		line = bytes.TrimSpace(line)
		switch {
		case len(line) == 0:
			continue
		case len(line) < minToken:
			return nil, fmt.Errorf("token_file: line %d of %s has a token of %d bytes, the least is %d", i+1, path, len(line), minToken)
		}
		tokens = append(tokens, line)
	}
	if len(tokens) == 0 {
		return nil, fmt.Errorf("token_file: %s has no tokens", path)
	}
	return tokens, nil
}
