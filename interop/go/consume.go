package main

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
)

// rebalance: A is alone, B joins, both share the queues, A leaves, B has them all; nothing is lost, and each
// queue's order holds in orderly mode.
func rebalance(c *ctx, orderly bool) error {
	p, mqs, err := c.begin(8)
	if err != nil {
		return err
	}
	var sent atomic.Int64
	var trouble atomic.Value
	stop := make(chan struct{})
	var sender sync.WaitGroup
	rec := &recorder{}
	group := c.group("")
	a, err := c.push(group, c.topic(), "*", rec.take("A"), consumer.WithConsumerOrder(orderly))
	if err != nil {
		return err
	}
	sender.Add(1)
	go func() {
		defer sender.Done()
		for {
			select {
			case <-stop:
				return
			case <-time.After(8 * time.Millisecond):
			}
			i := sent.Load()
			m := message(c.topic(), "", "", fmt.Sprintf("m%d", i))
			m.Queue = mqs[i%8]
			if _, err := sendOK(p, m); err != nil {
				trouble.Store(err)
				return
			}
			sent.Add(1)
		}
	}()
	halt := sync.OnceFunc(func() { close(stop); sender.Wait() })
	defer halt()
	begin := time.Now()
	if err := allQueues(rec, "A", begin); err != nil {
		return err
	}
	joined := time.Now()
	if _, err := c.push(group, c.topic(), "*", rec.take("B"), consumer.WithConsumerOrder(orderly)); err != nil {
		return err
	}
	if err := halves(rec, joined); err != nil {
		return err
	}
	c.note = fmt.Sprintf("halves after %d ms", time.Since(joined).Milliseconds())
	left := time.Now()
	if err := a.Shutdown(); err != nil {
		return err
	}
	if err := allQueues(rec, "B", left); err != nil {
		return err
	}
	halt()
	if err, ok := trouble.Load().(error); ok {
		return err
	}
	n := int(sent.Load())
	if err := rec.await(n, 60*time.Second); err != nil {
		return err
	}
	c.note += fmt.Sprintf("; %d sent, %d twice", n, len(rec.list())-n)
	if orderly {
		if err := rec.checkOrder(); err != nil {
			return err
		}
	}
	return rec.checkAll("m", n)
}

func allQueues(rec *recorder, member string, since time.Time) error {
	return until(60*time.Second, func() error {
		return equal(8, len(rec.queues(member, since)), "queues of "+member)
	})
}

// halves waits until the last second's messages of the two members come from different queues, all eight.
//
// This client never unlocks a queue that it gives up in orderly mode, so the next owner waits until the server's
// lock has run out (60 s) and its own next attempt (every 20 s).
func halves(rec *recorder, joined time.Time) error {
	return until(100*time.Second, func() error {
		since := time.Now().Add(-time.Second)
		if since.Before(joined) {
			return fmt.Errorf("too early")
		}
		a, b := rec.queues("A", since), rec.queues("B", since)
		for queue := range a {
			if b[queue] {
				return fmt.Errorf("queue %d goes to both", queue)
			}
		}
		return firstError(equal(4, len(a), "queues of A"), equal(4, len(b), "queues of B"))
	})
}

func broadcast(c *ctx) error {
	p, mqs, err := c.begin(4)
	if err != nil {
		return err
	}
	rec := &recorder{}
	for _, name := range []string{"A", "B"} {
		_, err := c.push(c.group(""), c.topic(), "*", rec.take(name), consumer.WithConsumerModel(consumer.BroadCasting))
		if err != nil {
			return err
		}
	}
	for i := 0; i < 40; i++ {
		m := message(c.topic(), "", "", fmt.Sprintf("m%d", i))
		m.Queue = mqs[i%4]
		if _, err := sendOK(p, m); err != nil {
			return err
		}
	}
	if err := until(45*time.Second, func() error {
		return equal(80, len(rec.list()), "deliveries to both members")
	}); err != nil {
		return err
	}
	for body, times := range rec.bodies() {
		if times != 2 {
			return fmt.Errorf("%s came %d times to two members", body, times)
		}
	}
	return rec.checkAll("m", 40)
}

func tags(c *ctx) error {
	p, mqs, err := c.begin(2)
	if err != nil {
		return err
	}
	names := []string{"A", "B", "C", "Aa", "BB", "标签", ""}
	for i := 0; i < 70; i++ {
		m := message(c.topic(), names[i%7], "", fmt.Sprintf("%s-%d", names[i%7], i))
		m.Queue = mqs[i%2]
		if _, err := sendOK(p, m); err != nil {
			return err
		}
	}
	// This client hashes a tag's bytes where everybody else hashes its UTF-16 letters: no filter beyond ASCII here.
	expected := map[string]int{"A || B": 20, "Aa": 10, "BB": 10, "C": 10, "*": 70, "nobody": 0}
	recorders := map[string]*recorder{}
	number := 0
	for expression := range expected {
		rec := &recorder{}
		recorders[expression] = rec
		number++
		if _, err := c.push(c.group(fmt.Sprintf("-f%d", number)), c.topic(), expression, rec.take("A")); err != nil {
			return err
		}
	}
	for expression, n := range expected {
		if err := recorders[expression].await(n, 40*time.Second); err != nil {
			return fmt.Errorf("'%s': %w", expression, err)
		}
	}
	time.Sleep(500 * time.Millisecond)
	for expression, n := range expected {
		if err := equal(n, len(recorders[expression].list()), "messages for '"+expression+"'"); err != nil {
			return err
		}
	}
	for body := range recorders["Aa"].bodies() {
		if !strings.HasPrefix(body, "Aa-") {
			return fmt.Errorf("'Aa' received %s", body)
		}
	}
	return nil
}

func resume(c *ctx) error {
	p, mqs, err := c.begin(4)
	if err != nil {
		return err
	}
	send := func(from int) error {
		for i := from; i < from+100; i++ {
			m := message(c.topic(), "", "", fmt.Sprintf("m%d", i))
			m.Queue = mqs[i%4]
			if _, err := sendOK(p, m); err != nil {
				return err
			}
		}
		return nil
	}
	if err := send(0); err != nil {
		return err
	}
	rec := &recorder{}
	first, err := c.push(c.group(""), c.topic(), "*", rec.take("A"))
	if err != nil {
		return err
	}
	if err := rec.await(100, 40*time.Second); err != nil {
		return err
	}
	time.Sleep(500 * time.Millisecond)
	if err := first.Shutdown(); err != nil {
		return err
	}
	if err := send(100); err != nil {
		return err
	}
	if _, err := c.push(c.group(""), c.topic(), "*", rec.take("B")); err != nil {
		return err
	}
	if err := rec.await(200, 40*time.Second); err != nil {
		return err
	}
	time.Sleep(500 * time.Millisecond)
	if err := equal(200, len(rec.list()), "deliveries"); err != nil {
		return err
	}
	return rec.checkAll("m", 200)
}

func retry(c *ctx) error {
	p, mqs, err := c.begin(2)
	if err != nil {
		return err
	}
	failed, rec := &recorder{}, &recorder{}
	_, err = c.push(c.group(""), c.topic(), "*",
		func(ctx context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
			for _, m := range messages {
				if m.ReconsumeTimes == 0 && strings.HasSuffix(string(m.Body), "0") {
					failed.add("A", m)
					concurrent, _ := primitive.GetConcurrentlyCtx(ctx)
					concurrent.DelayLevelWhenNextConsume = 1
					return consumer.ConsumeRetryLater, nil
				}
				rec.add("A", m)
			}
			return consumer.ConsumeSuccess, nil
		})
	if err != nil {
		return err
	}
	for i := 0; i < 20; i++ {
		m := message(c.topic(), "tag", fmt.Sprintf("key%d", i), fmt.Sprintf("m%d", i))
		m.WithProperty("名字", "值")
		m.Queue = mqs[i%2]
		if _, err := sendOK(p, m); err != nil {
			return err
		}
	}
	if err := rec.await(20, 90*time.Second); err != nil {
		return err
	}
	for _, g := range rec.list() {
		again := strings.HasSuffix(string(g.message.Body), "0")
		if again != (g.message.ReconsumeTimes == 1) || g.message.GetProperty("名字") != "值" {
			return fmt.Errorf("%s: reconsumed %d times, property %s", g.message.Body, g.message.ReconsumeTimes,
				g.message.GetProperty("名字"))
		}
	}
	return firstError(equal(2, len(failed.list()), "failures"), rec.checkAll("m", 20))
}

func dlq(c *ctx) error {
	p, mqs, err := c.begin(1)
	if err != nil {
		return err
	}
	var deliveries atomic.Int64
	_, err = c.push(c.group(""), c.topic(), "*",
		func(ctx context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
			deliveries.Add(int64(len(messages)))
			concurrent, _ := primitive.GetConcurrentlyCtx(ctx)
			concurrent.DelayLevelWhenNextConsume = 1
			return consumer.ConsumeRetryLater, nil
		}, consumer.WithMaxReconsumeTimes(1))
	if err != nil {
		return err
	}
	m := message(c.topic(), "tagD", "keyD", "bad")
	m.Queue = mqs[0]
	if _, err := sendOK(p, m); err != nil {
		return err
	}
	if err := until(90*time.Second, func() error {
		return equal(int64(2), deliveries.Load(), "deliveries (one and one retry)")
	}); err != nil {
		return err
	}
	dead := "%DLQ%" + c.group("")
	rec := &recorder{}
	var reader rocketmq.PushConsumer
	if err := until(30*time.Second, func() error {
		if reader == nil {
			reader, err = c.push(c.group("-dead"), dead, "*", rec.take("A"))
		}
		return err
	}); err != nil {
		return err
	}
	if err := rec.await(1, 60*time.Second); err != nil {
		return fmt.Errorf("dead-letter topic: %w", err)
	}
	got := rec.list()[0].message
	return firstError(
		equal("bad", string(got.Body), "dead body"),
		equal("tagD", got.GetTags(), "dead tag"),
		equal("keyD", got.GetKeys(), "dead key"),
		equal(int64(2), deliveries.Load(), "deliveries"),
	)
}

func delay(c *ctx) error {
	p, mqs, err := c.begin(2)
	if err != nil {
		return err
	}
	rec := &recorder{}
	if _, err := c.push(c.group(""), c.topic(), "*", rec.take("A")); err != nil {
		return err
	}
	now := message(c.topic(), "", "", "now")
	now.Queue = mqs[0]
	if _, err := sendOK(p, now); err != nil {
		return err
	}
	if err := rec.await(1, 40*time.Second); err != nil {
		return err
	}
	levels := []int{1, 1, 2, 2}
	waits := map[int]time.Duration{1: time.Second, 2: 5 * time.Second}
	due := map[string]time.Time{}
	for i, level := range levels {
		m := message(c.topic(), "", "", fmt.Sprintf("level%d-%d", level, i))
		m.WithDelayTimeLevel(level)
		m.Queue = mqs[i%2]
		due[string(m.Body)] = time.Now().Add(waits[level])
		if _, err := sendOK(p, m); err != nil {
			return err
		}
	}
	if err := rec.await(5, 20*time.Second); err != nil {
		return err
	}
	for _, g := range rec.list() {
		at, delayed := due[string(g.message.Body)]
		if delayed && (g.at.Before(at.Add(-time.Millisecond)) || g.at.After(at.Add(2500*time.Millisecond))) {
			return fmt.Errorf("%s came %v after its time", g.message.Body, g.at.Sub(at))
		}
	}
	return equal(5, len(rec.list()), "deliveries")
}

func pull(c *ctx) error {
	p, mqs, err := c.begin(1)
	if err != nil {
		return err
	}
	for i := 0; i < 50; i++ {
		m := message(c.topic(), "", "", fmt.Sprintf("m%d", i))
		m.Queue = mqs[0]
		if _, err := sendOK(p, m); err != nil {
			return err
		}
	}
	reader, err := rocketmq.NewPullConsumer(consumer.WithNameServer(c.servers()), consumer.WithGroupName(c.group("")),
		consumer.WithInstance(instance()))
	if err != nil {
		return err
	}
	if err := reader.Subscribe(c.topic(), consumer.MessageSelector{Type: consumer.TAG, Expression: "*"}); err != nil {
		return err
	}
	if err := reader.Start(); err != nil {
		return err
	}
	c.onClose(func() { _ = reader.Shutdown() })
	// The original shows a message in its queue a moment after it acknowledged it.
	time.Sleep(300 * time.Millisecond)
	page, err := reader.PullFrom(context.Background(), mqs[0], 10, 20)
	if err != nil {
		return err
	}
	if err := firstError(
		equal(primitive.PullFound, page.Status, "status"),
		equal(20, len(page.GetMessageExts()), "size of a page of 20"),
		equal(int64(30), page.NextBeginOffset, "next offset"),
		equal(int64(50), page.MaxOffset, "max offset"),
	); err != nil {
		return err
	}
	for i, m := range page.GetMessageExts() {
		if err := equal(fmt.Sprintf("m%d", 10+i), string(m.Body), "body"); err != nil {
			return err
		}
	}
	beyond, err := reader.PullFrom(context.Background(), mqs[0], 1050, 10)
	if err != nil {
		return err
	}
	return firstError(
		equal(primitive.PullOffsetIllegal, beyond.Status, "status far past the end"),
		equal(int64(50), beyond.NextBeginOffset, "corrected offset"),
	)
}
