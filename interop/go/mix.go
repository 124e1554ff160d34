package main

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
)

// The contract that all clients of the mixed scenarios keep: 40 messages, number i with body "mix-i" (every
// fourth padded over 4 KiB, so that it is compressed), tag "even"/"odd", key "key-i", property "名字"="值-i".
const mixCount = 40

func mixBody(i int) string {
	if i%4 == 0 {
		return fmt.Sprintf("mix-%d", i) + strings.Repeat(" padded", 1000)
	}
	return fmt.Sprintf("mix-%d", i)
}

func mixTag(i int) string {
	if i%2 == 0 {
		return "even"
	}
	return "odd"
}

func mixProduce(c *ctx) error {
	topic := c.args["topic"]
	mqs, err := c.createTopic(topic, 4)
	if err != nil {
		return err
	}
	p, err := c.producer()
	if err != nil {
		return err
	}
	for i := 0; i < mixCount; i++ {
		m := message(topic, mixTag(i), fmt.Sprintf("key-%d", i), mixBody(i))
		m.WithProperty("名字", fmt.Sprintf("值-%d", i))
		m.Queue = mqs[i%4]
		if _, err := sendOK(p, m); err != nil {
			return err
		}
	}
	return nil
}

func mixConsume(c *ctx) error {
	rec := &recorder{}
	var mu sync.Mutex
	var wrong []string
	_, err := c.push("g-"+c.args["topic"]+"-"+c.args["as"], c.args["topic"], "even || odd",
		func(_ context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
			for _, m := range messages {
				var i int
				_, _ = fmt.Sscanf(string(m.Body), "mix-%d", &i)
				err := firstError(
					equal(mixBody(i), string(m.Body), "body"),
					equal(mixTag(i), m.GetTags(), "tag"),
					equal(fmt.Sprintf("key-%d", i), m.GetKeys(), "keys"),
					equal(fmt.Sprintf("值-%d", i), m.GetProperty("名字"), "property"),
				)
				if err != nil {
					mu.Lock()
					wrong = append(wrong, fmt.Sprintf("number %d: %v", i, err))
					mu.Unlock()
				}
				rec.add("A", m)
			}
			return consumer.ConsumeSuccess, nil
		})
	if err != nil {
		return err
	}
	if err := rec.await(mixCount, 40*time.Second); err != nil {
		return err
	}
	time.Sleep(300 * time.Millisecond)
	mu.Lock()
	defer mu.Unlock()
	if len(wrong) > 0 {
		return fmt.Errorf("came back different: %s", wrong[0])
	}
	return equal(mixCount, len(rec.list()), "deliveries")
}
