package bigtable

import (
	"flag"
	"testing"

	"github.com/promtable/promtable/e2e/harness"
)

var runMutants = flag.Bool("mutants", false, "run the tests of each mutant, which takes minutes")

// A mutant is a harness.Mutant.
type mutant struct {
	File, Old, New string
	Tests          [2]string
}

// mutants are the adapter without one of the rules by which several answer as one.
func mutants() []mutant {
	model, sync := [2]string{"./bucketstore/buffer", "TestFleetModel"}, [2]string{"./remote/fleet", "TestSync"}
	adopted := [2]string{"./bucketstore/buffer", "TestAdopt"}
	late, members := [2]string{"./remote/fleet", "TestLate"}, [2]string{"./e2e/bigtable", "TestMembers$"}
	return []mutant{
		// Open first, rows after.
		{"remote/fleet/store.go", "	open, err := s.fleet.open(ctx, path, ask)\n", `	var rows openRows
	_ = s.Store.Scan(ctx, req, func(r bucketstore.Row) error {
		r.Key = bytes.Clone(r.Key)
		r.Cells = slices.Clone(r.Cells)
		for i := range r.Cells {
			r.Cells[i].Qualifier, r.Cells[i].Value = bytes.Clone(r.Cells[i].Qualifier), bytes.Clone(r.Cells[i].Value)
		}
		rows = append(rows, r)
		return nil
	})
	open, err := s.fleet.open(ctx, path, ask)
	if err == nil {
		over := openRows(mergeRows([][]bucketstore.Row{rows, open}))
		return bucketstore.EachOver(&over, fn)
	}
`, model},
		// Who cannot be asked is missing, unless META says otherwise now.
		{"remote/fleet/store.go", "errs[i] = f.note(ctx, missing(state, err))", "_ = state", model},
		{"remote/fleet/store.go", "!state.Promises(f.latest(path, req))", "!state.Promises(1)", model},
		{"remote/fleet/fleet.go", "		now.Promise = 0 // it may have been lowered\n		return now, false, errors.Join(err, lookErr)", "		return l, true, nil", [2]string{"./remote/fleet", "TestMetaAway"}},
		{"remote/fleet/fleet.go", "	logs, err := f.others(ctx, f.cfg.Now())\n", "	logs, err := f.others(ctx, f.cfg.Now().Add(-maxListAge))\n", [2]string{"./remote/fleet", "TestPartial"}},
		// The list of members is not old, and none is missed between two.
		{"remote/fleet/fleet.go", "maxListAge = 10 * time.Second", "maxListAge = 10 * time.Minute", model},
		{"remote/fleet/sync.go", "mustForget := bucketstore.Elapsed(f.sync.seen, l.at) >= maxGap", "mustForget := false", sync},
		// What members have indexed.
		{"remote/fleet/sync.go", "	if f.isAlone() {\n		return nil", "	if true {\n		return nil", model},
		{"remote/fleet/sync.go", "mustForget = mustForget || t.Lost", "_ = t.Lost", model},
		{"remote/fleet/sync.go", "		if _, ok := contacts[token]; !ok {", "		if _, ok := contacts[token]; ok && !ok {", sync},
		{"remote/fleet/sync.go", "			contacts[contactKey(t.log)] = contact{}\n", "", sync},
		{"remote/fleet/sync.go", "		if err := f.note(ctx, missing(l.log, l.err)); err != nil {", "		if err := error(nil); err != nil {", sync},
		{"index/write.go", "	x.tell(found)\n", "", [2]string{"./index", "TestLearn"}},
		// Only the process that is meant answers.
		{"remote/fleet/server.go", "*of != own", "of.Log != own.Log", [2]string{"./remote/fleet", "TestPartial"}},
		// Nothing is acknowledged that breaks the promise, or that others may not ask for.
		{"bucketstore/buffer/member.go", "	if earliest < high {", "	if earliest < high-1<<60 {", [2]string{"./bucketstore/buffer", "TestMember$"}},
		{"bucketstore/buffer/member.go", "joined.IsZero() || m.age(joined) < JoinTime", "joined.IsZero()", model},
		{"bucketstore/buffer/member.go", "	if silent := m.age(m.renewed); silent > limit {", "	if silent := m.age(m.renewed); silent < 0 {", [2]string{"./bucketstore/buffer", "TestMemberSilent"}},
		{"bucketstore/buffer/member.go", "min(oldest, pending, m.since, latest)", "min(max(1<<60, oldest), pending, m.since, latest)", [2]string{"./bucketstore/buffer", "TestMember$"}},
		{"bucketstore/buffer/member.go", "	if found.Token != m.token {\n", "	if found.Token == `none` {\n", [2]string{"./bucketstore/buffer", "TestMemberForeign"}},
		// A member that starts again is one that cannot be asked, until it answers.
		{"bucketstore/buffer/bind.go", "			l.Address, l.Token, l.Promise, l.Settings = logs[i]", "			_, _, _, _ = logs[i]", [2]string{"./e2e/bigtable", "TestMembersUnderLoad"}},
		// The row goes last.
		{"bucketstore/buffer/buffer.go", "	err := b.flushAtEnd()\n", "	_ = b.dir.deregister(context.Background(), b.stamp)\n	err := b.flushAtEnd()\n", [2]string{"./bucketstore/buffer", "TestMemberLeaves"}},
		// The log of one that has died is ended before it is read, and its row goes when its samples are stored.
		{"bucketstore/buffer/adopt.go", "	if err := endLog(rows); err != nil {\n", "	if err := error(nil); err != nil {\n", adopted},
		{"bucketstore/buffer/adopt.go", "err = rows.RemoveEnded()", "err = rows.RemoveAll()", adopted},
		{"bucketstore/buffer/adopt.go", "	kept, err := a.replay(replaying, stop, rows)\n", "	_ = store.RemoveLog(ctx, l.ID)\n	kept, err := false, error(nil)\n", model},
		{"bucketstore/buffer/member.go", "		limit = maxRowsSilence\n", "", adopted},
		{"bucketstore/rowfiles/rowfiles.go", "Qualifier: []byte(sizeQualifier), Absent: true}", "Qualifier: []byte(`x`), Absent: true}", [2]string{"./bucketstore/rowfiles", "TestEnd"}},
		// What had no answer is in the log, or comes into it before what follows.
		{"bucketstore/buffer/log.go", "	if isRefusal(err) && !errors.Is(err, durable.ErrAway) {", "	if isRefusal(err) {", [2]string{"./bucketstore/buffer", "TestRowLogAway"}},
		// Cached results are those that members have told of.
		{"remote/fleet/sync.go", "			f.cfg.Late(l)\n", "			_ = l\n", members},
		{"remote/fleet/sync.go", "		f.cfg.Lost()\n", "", late},
		{"remote/fleet/sync.go", "r.isWhole = told && ", "r.isWhole = ", late},
		{"remote/fleet/sync.go", "len(logs) == len(l.logs) && ", "", late},
		{"remote/fleet/late.go", "		return f.isMember()\n", "		return true\n", late},
		{"remote/engine/resultcache/query.go", "!closed.isEmpty() && !confirm(ctx)", "!confirm(ctx) && closed.isEmpty()", members},
		{"cmd/adapter/run.go", "			a.fleet.Written(tenant, samples)\n", "", members},
		// Days of which members have samples are not read from rollups.
		{"remote/fleet/store.go", "ChunksHaveDay(open[i].Cells,", "ChunksHaveDay(open[i].Cells[:0],", [2]string{"./remote/fleet", "TestRollups"}},
	}
}

// TestMutants: each rule is where it is said to be and, with -mutants, an adapter without it fails a test.
func TestMutants(t *testing.T) {
	var all []harness.Mutant
	for _, m := range mutants() {
		all = append(all, harness.Mutant(m))
	}
	harness.CheckMutants(t, *runMutants, all)
}
