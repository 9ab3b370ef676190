"""What ``tx`` promises a client, through pika and aio-pika."""
