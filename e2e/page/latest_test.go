//go:build browser

package page

import (
	"fmt"
	"slices"
	"strconv"
	"testing"

	"github.com/chromedp/chromedp/kb"

	"github.com/promtable/promtable/e2e/harness"
)

// pageLong is how many series of a_zz_cpu TestPageMany stores, beside one of zz_cpu.
const pageLong = 30_000

// A scrolledRow is a row of a list of which only those in sight are there.
type scrolledRow struct {
	Index int // from 0 on
	Cells []string
}

// scrolled returns the rows that are to be seen.
func (p *browserPage) scrolled() []scrolledRow {
	p.Helper()
	return evaluate[[]scrolledRow](p, `(() => {
		const area = document.querySelector(".virtual .rows"), { top, bottom } = area.getBoundingClientRect();
		const head = area.querySelector("thead").getBoundingClientRect().bottom;
		return [...area.querySelectorAll("tbody:not(.pad) tr")].filter((row) => {
			const r = row.getBoundingClientRect();
			return r.bottom > head + 1 && r.top < bottom - 1;
		}).map((row) => ({ Index: Number(row.getAttribute("aria-rowindex")) - 2, Cells: [...row.cells].map((c) => c.innerText.trim()) }));
	})()`)
}

// wantScrolled wants the list to show this row, all of the rows in sight one after the other, and few elements.
func (p *browserPage) wantScrolled(index int, cell, text string) {
	p.Helper()
	harness.Eventually(p, fmt.Sprintf("row %d is %s", index, text), func() error {
		rows := p.scrolled()
		for i, row := range rows {
			if row.Index != rows[0].Index+i {
				return fmt.Errorf("after row %d comes %d", rows[0].Index+i-1, row.Index)
			}
		}
		at := slices.IndexFunc(rows, func(r scrolledRow) bool { return r.Index == index })
		if at < 0 {
			return fmt.Errorf("it is not among %+v", rows)
		}
		if got := rows[at].Cells[map[string]int{"Series": 0, "Value": 1}[cell]]; got != text {
			return fmt.Errorf("it is %q", got)
		}
		return nil
	})
	if n := evaluate[int](p, `document.querySelectorAll(".virtual tr").length`); n > 100 {
		p.Errorf("the list has %d rows as elements", n)
	}
}

// checkScrolled looks at all series of TestPageMany in one list.
func (p *browserPage) checkScrolled() {
	p.Helper()
	const place = ".virtual span[role=status]"
	p.eachLook(func(look string) {
		p.open("tab", "latest", "filter", "zz_cpu", "limit", "100000")
		p.wantScrolled(0, "Series", "zz_cpu")
		p.wantScrolled(1, "Series", `a_zz_cpu{n="00000"}`)
		if got := p.texts(place); !slices.Equal(got, []string{"30,001 rows"}) {
			p.Errorf("the list has %q", got)
		}
		if n := evaluate[string](p, `document.querySelector(".virtual table").getAttribute("aria-rowcount")`); n != "30002" {
			p.Errorf("screen readers are told of %s rows", n)
		}
		if tall := evaluate[int](p, "document.documentElement.scrollHeight"); tall > 2000 {
			p.Errorf("the page is %d px tall", tall)
		}
		p.checkContrast(look)
		p.shoot("many-" + look)

		// By the keys, from the list itself.
		evaluate[bool](p, `(() => { document.querySelector(".virtual .rows").focus(); return true })()`)
		p.press(kb.End)
		p.wantScrolled(pageLong, "Series", `a_zz_cpu{n="29999"}`)
		p.press(kb.Home)
		p.wantScrolled(0, "Series", "zz_cpu")
		evaluate[bool](p, `(() => { document.querySelector(".virtual .rows").scrollTop = document.querySelector(".virtual .rows").scrollHeight / 2; return true })()`)
		harness.Eventually(p, "the middle is in sight", func() error {
			if rows := p.scrolled(); len(rows) < 3 || rows[0].Index < pageLong/2-100 || rows[0].Index > pageLong/2+100 || rows[0].Cells[1] != strconv.Itoa(rows[0].Index-1) {
				return fmt.Errorf("there are %+v", rows)
			}
			return nil
		})

		p.click("#latest th:nth-child(2) button")
		p.click("#latest th:nth-child(2) button")
		p.wantScrolled(0, "Value", strconv.Itoa(pageLong-1))
		if order := evaluate[string](p, `document.querySelector("#latest th:nth-child(2)").getAttribute("aria-sort")`); order != "descending" {
			p.Errorf("it is sorted %s", order)
		}
		evaluate[bool](p, `(() => { document.querySelector("#latest .virtual input").focus(); return true })()`)
		p.press("zz_cpu")
		p.wantScrolled(0, "Series", "zz_cpu")
		p.wantScrolled(1, "Value", strconv.Itoa(pageLong-1))
		p.press(`{n="12345"`)
		p.wantScrolled(0, "Value", "12345")
		if rows, got := p.scrolled(), p.texts(place); len(rows) != 1 || !slices.Equal(got, []string{"1 of 30,001 rows"}) {
			p.Errorf("found is %+v, %q", rows, got)
		}
	})
	p.checkTabs()
	p.checkReflow()
}

// checkTabs goes through rows by Tab: the list scrolls, and the focus stays on a row.
func (p *browserPage) checkTabs() {
	p.Helper()
	p.open("tab", "latest", "filter", "zz_cpu", "limit", "100000")
	evaluate[bool](p, `(() => { document.querySelector(".virtual .rows").focus(); return true })()`)
	const rows = 60
	for range 3 + 1 + rows { // the headings, and zz_cpu
		p.press(kb.Tab)
		// Rows are made as the list scrolls, which it does after the key.
		p.await(`document.activeElement.closest(".virtual tbody tr")?.matches(":nth-last-child(n + 6)") ?? true`)
	}
	p.wantFocus(fmt.Sprintf(`a_zz_cpu{n="%05d"}`, rows-1))
	evaluate[bool](p, `(() => { document.querySelector(".virtual .rows").scrollTop = 100_000; return true })()`)
	p.await(`document.activeElement === document.querySelector(".virtual .rows")`)
}

// checkReflow makes the page narrow: rows get another height, and the list stays where it is.
func (p *browserPage) checkReflow() {
	p.Helper()
	p.open("tab", "latest", "filter", "zz_cpu", "limit", "100000")
	p.width(1200)
	evaluate[bool](p, `(() => { const rows = document.querySelector(".virtual .rows"); rows.scrollTop = rows.scrollHeight / 3; return true })()`)
	first := func() int {
		p.Helper()
		n := 0
		harness.Eventually(p, "rows are in sight", func() error {
			rows := p.scrolled()
			if len(rows) == 0 {
				return fmt.Errorf("none is")
			}
			n = rows[0].Index
			return nil
		})
		return n
	}
	p.await(`document.querySelector(".virtual tbody:not(.pad) tr").getAttribute("aria-rowindex") > 9000`)
	before := first()
	p.width(390)
	harness.Eventually(p, "the list is where it was", func() error {
		if now := first(); now < before-3 || now > before+3 {
			return fmt.Errorf("row %d was in sight, and is %d", before, now)
		}
		return nil
	})
}

// TestPageLatestLong shows label sets that take several lines: no row hides the next one.
func TestPageLatestLong(t *testing.T) {
	t.Parallel()
	a := harness.StartAdapter(t, harness.Embedded(t))
	var series []harness.SentSeries
	for i := range 250 {
		series = append(series, harness.SentSeries{Labels: []string{
			"__name__", "http_request_duration_seconds_bucket", "handler", "/api/v1/query_range", "instance", fmt.Sprintf("web-%03d.example.com:9100", i), "job", "api", "le", "0.25", "method", "GET",
		}, Points: []harness.Point{harness.PointAt(harness.NowMillis(), 12345.678)}})
	}
	harness.RemoteWrite2().MustSend(t, a.URL("/api/v1/write"), series...)
	p := newPage(t, a)
	p.eachLook(func(look string) {
		p.open("tab", "latest", "filter", "http")
		p.await(`document.querySelectorAll(".virtual tbody:not(.pad) tr").length > 5`)
		cut := evaluate[[]string](p, `[...document.querySelectorAll(".virtual tbody:not(.pad) td > div, .virtual td a")].filter((d) => d.scrollHeight > d.clientHeight + 1 || d.scrollWidth > d.clientWidth + 1).map((d) => d.innerText)`)
		if len(cut) > 0 {
			t.Errorf("%s: not whole are %q", look, cut[:1])
		}
		p.shoot("latest-long-" + look)
	})
}

// TestPageLatestOrder sorts a list that is scrolled by each of its columns.
func TestPageLatestOrder(t *testing.T) {
	t.Parallel()
	a := harness.StartAdapter(t, harness.Embedded(t))
	now := harness.NowMillis()
	var series []harness.SentSeries
	for i := range 250 {
		series = append(series, harness.SentSeries{Labels: []string{"__name__", "aged", "n", strconv.Itoa(i)}, Points: []harness.Point{harness.PointAt(now-int64(i)*60_000, float64(-i))}})
	}
	harness.RemoteWrite2().MustSend(t, a.URL("/api/v1/write"), series...)
	p := newPage(t, a)
	p.open("tab", "latest", "filter", "aged")
	for _, c := range []struct {
		column                int
		ascending, descending string
	}{{1, "0", "-249"}, {2, "-249", "0"}, {3, "0", "-249"}} {
		for _, want := range []string{c.ascending, c.descending} {
			p.click(fmt.Sprintf("#latest th:nth-child(%d) button", c.column))
			p.wantScrolled(0, "Value", want)
		}
	}
}
