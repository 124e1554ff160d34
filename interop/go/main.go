// Command interop-go runs scenarios with the official Go client.
//
//	interop-go NAMESRV SCENARIO [key=value ...]   runs one, exits 0 or 1
//	interop-go NAMESRV -                          reads such lines from standard input until its end
//
// With "-" each scenario is answered by one line "@ok|@FAIL|@skipped NAME MILLISECONDS TEXT". Several scenarios
// run at the same time, because most of them only wait.
package main

import (
	"bufio"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/apache/rocketmq-client-go/v2/rlog"
)

const atOnce = 10

var scenarios = map[string]func(*ctx) error{
	"send-sync":          sendSync,
	"send-async":         sendAsync,
	"send-oneway":        sendOneway,
	"send-batch":         sendBatch,
	"send-selector":      sendSelector,
	"send-properties":    sendProperties,
	"send-big":           sendBig,
	"send-compressed":    sendCompressed,
	"consume-concurrent": func(c *ctx) error { return rebalance(c, false) },
	"consume-orderly":    func(c *ctx) error { return rebalance(c, true) },
	"consume-broadcast":  broadcast,
	"consume-tags":       tags,
	"consume-resume":     resume,
	"retry":              retry,
	"dlq":                dlq,
	"delay":              delay,
	"pull":               pull,
	"mix-produce":        mixProduce,
	"mix-consume":        mixConsume,
}

func main() {
	rlog.SetLogLevel("error")
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: interop-go NAMESRV SCENARIO [key=value ...]  |  interop-go NAMESRV -")
		os.Exit(2)
	}
	var failed atomic.Bool
	if os.Args[2] != "-" {
		run(os.Args[1], os.Args[2:], &failed)
	} else {
		var all sync.WaitGroup
		slots := make(chan struct{}, atOnce)
		in := bufio.NewScanner(os.Stdin)
		for in.Scan() {
			words := strings.Fields(in.Text())
			if len(words) == 0 {
				continue
			}
			slots <- struct{}{}
			all.Add(1)
			go func() {
				defer all.Done()
				run(os.Args[1], words, &failed)
				<-slots
			}()
		}
		all.Wait()
	}
	if failed.Load() {
		os.Exit(1)
	}
}

var printing sync.Mutex

func report(result, name string, begin time.Time, text string) {
	printing.Lock()
	defer printing.Unlock()
	fmt.Printf("@%s %s %d %s\n", result, name, time.Since(begin).Milliseconds(), strings.Join(strings.Fields(text), " "))
}

func run(namesrv string, words []string, failed *atomic.Bool) {
	begin := time.Now()
	name, _, _ := strings.Cut(words[0], ":")
	code, known := scenarios[name]
	if !known {
		report("skipped", words[0], begin, "this client has no such scenario")
		return
	}
	c := &ctx{namesrv: namesrv, name: name, args: map[string]string{"prefix": fmt.Sprintf("t%d", begin.UnixNano())}}
	for _, word := range words[1:] {
		key, value, _ := strings.Cut(word, "=")
		c.args[key] = value
	}
	err := guarded(c, code)
	c.close()
	if err != nil {
		failed.Store(true)
		report("FAIL", words[0], begin, err.Error())
		return
	}
	report("ok", words[0], begin, c.note)
}

func guarded(c *ctx, code func(*ctx) error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v", r)
		}
	}()
	return code(c)
}
